"""``%%gpu_sweep`` in a real kernel on a real cluster."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doc_blocks import blocks_in
from kernel_bed import Notebook

from jupyter_gpu_release.client.config import GpuRelease
from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded
from jupyter_gpu_release.server_extension.gateway import GatewayConnection, GatewayListener
from jupyter_gpu_release.server_extension.models import RunPage
from jupyter_gpu_release.server_extension.runs.page import RunRecords

Until = Callable[[Callable[[], object], str], None]
pytestmark = pytest.mark.thorough


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    """``jupyter gpu`` with these words."""
    command = [sys.executable, "-m", "jupyter_gpu_release.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def _unwrapped(texts: list[str]) -> str:
    """Titles of tables are as wide as the terminal."""
    return " ".join(" ".join(texts).split())


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory, _use_the_sessions_cluster: None) -> Iterator[Notebook]:
    """One kernel for all of them."""
    made = Notebook(tmp_path_factory.mktemp("notebook"))
    made.ok("import numpy\nshared = numpy.arange(300_000.0)\nwidths = [1, 2, 3]\nseen = []")
    yield made
    made.close()


def test_the_best_trials_names_are_bound(notebook: Notebook) -> None:
    """Two names on a line, a call over two lines, names of the notebook in the space; inputs stay as they were."""
    shown = notebook.ok(
        "%%gpu_sweep --metric score --max --name widths\n"
        "width = search(widths); depth: int = search(\n    [1, 2]\n)\n"
        "import os\ncalled = os.environ['GPU_TRIAL_NAME']\nmodel = shared[: width * depth]\n"
        "seen.append(width)\n"
        "score = width * depth if depth == 1 else 1 / (width - 2)"
    )
    assert notebook.value("[width, depth, score, len(model), seen]") == [3, 1, 3.0, 3, [3]]
    assert notebook.value("[called == f'widths {sweep.best.number}', 'GPU_TRIAL_NAME' in os.environ]") == [True, False]
    assert notebook.value("sorted(sweep.trials['state'])") == ["complete"] * 5 + ["failed"]
    assert notebook.value("sweep.load(sweep.best.number)['score']") == 3
    final = shown.displays()[-1]
    assert final.startswith("✓ 6 trials · 5 complete · 1 failed · best score=3 (trial ")
    assert "failed: ZeroDivisionError: division by zero" in final
    assert "names of trial" in final
    page = shown.displays("text/html")[-1]
    assert "<script" not in page
    assert page.count("<tr>") == 6
    assert [picture[:6] for picture in shown.displays("image/png")] == ["iVBORw"] * 2
    with GatewayClient.for_target(find_gateway()) as gateway:
        rows = [row for row in gateway.runs().runs if row.name.startswith("widths ")]
    assert {row.priority for row in rows} == {"low"}
    page = asyncio.run(_page(rows[0].sweep))
    assert (page.run.run, page.run.state, page.files) == (rows[0].sweep, "succeeded", [])
    assert "score = width * depth" in page.code
    values = [(trial.name, trial.metric, trial.title.partition("(")[2]) for trial in page.trials]
    assert ("widths 0", {"score": 1.0}, "width=1, depth=1)") in values
    assert [metric for _, metric, words in values if words == "width=2, depth=2)"] == [{}]  # it has failed
    assert sorted(name for name, _, _ in values) == [f"widths {number}" for number in range(6)]


async def _page(run: str) -> RunPage:
    """As JupyterLab shows it."""
    line = GatewayConnection(GpuRelease(), GatewayListener())
    try:
        return await RunRecords().page(line, run)
    finally:
        await line.close()


def test_plots_are_the_users_and_a_sentence_without_matplotlib(notebook: Notebook) -> None:
    """The sweep is that of the test before."""
    assert len(notebook.ok("drawn = sweep.plot()").displays("image/png")) == 2
    lacks = "find_spec = lambda name, *more: None if name == 'matplotlib' else found(name, *more)"
    notebook.ok(f"import importlib.util\nfound = importlib.util.find_spec\nimportlib.util.{lacks}")
    shown = notebook.ok("%%gpu_sweep --metric score\nn = search([1, 2])\nscore = n")
    notebook.ok("importlib.util.find_spec = found")
    assert "plots of the sweep need matplotlib: %pip install matplotlib" in shown.displays()[-1]
    assert shown.displays("image/png") == []


#: stand-ins that take what the libraries document: Weights & Biases its variables, MLflow what it is called with
_WANDB = """
import os
def init(*, project, name=None, group=None):
    made = {"name": name or os.environ["WANDB_NAME"], "group": group or os.environ["WANDB_RUN_GROUP"]}
    with open(f"wandb-{made['name']}", "x") as file:
        file.write(f"{project}, {made['group']}")
    return made
"""
_MLFLOW = """
import contextlib
@contextlib.contextmanager
def start_run(*, run_name):
    with open(f"mlflow-{run_name}", "x") as file:
        yield file
"""


def test_a_trackers_run_has_its_trials_name(notebook: Notebook) -> None:
    """Of Weights & Biases without a word, of MLflow as the page says; TensorBoard's files are the trial's own."""
    pytest.importorskip("tensorboardX")
    for name, text in {"wandb": _WANDB, "mlflow": _MLFLOW}.items():
        (notebook.folder / f"{name}.py").write_text(text)
    page = (Path(__file__).parents[2] / "docs/use/kept-sweeps.md").read_text()
    (start,) = re.findall(r"`(mlflow\.start_run.*?)`", page)
    cell = (
        "%%gpu_sweep --metric score --name tracked{}\nimport os, mlflow, wandb\n"
        "from jupyter_gpu_release import run_dir\n"
        "from tensorboardX import SummaryWriter\nn = search([1, 2])\nscore = n\n"
        "logged = wandb.init(project='digits')\n"
        f"with {start} as log:\n    log.write(str(n))\n"
        "with SummaryWriter(run_dir) as board:\n    board.add_scalar('score', n, 0)"
    )
    notebook.ok(cell.format(""))
    written = {file.name: file.read_text() for file in notebook.folder.glob("*-tracked *")}
    trials = notebook.value("[[trial.number, trial.parameters['n'], trial.run] for trial in sweep.all_trials]")
    assert written == {
        name: text
        for number, n, _ in trials
        for name, text in ((f"wandb-tracked {number}", "digits, tracked"), (f"mlflow-tracked {number}", str(n)))
    }
    assert notebook.value("logged") == {"name": f"tracked {notebook.value('sweep.best.number')}", "group": "tracked"}
    with GatewayClient.for_target(find_gateway()) as gateway:
        for _, _, run in trials:
            paths = [entry.path for entry in gateway.view(run).outcome.files]
            assert sum(path.startswith("run_dir/events.out.tfevents.") for path in paths) == 1, paths
    notebook.ok("import os\nos.environ['WANDB_RUN_GROUP'] = 'mine'")
    notebook.ok(
        cell.format(" --env WANDB_NAME=chosen --max").replace("search([1, 2])", "search([1])").replace("tracked", "own")
    )
    assert notebook.value("logged") == {"name": "chosen", "group": "mine"}
    notebook.ok("del os.environ['WANDB_RUN_GROUP']")


def test_an_estimate_runs_nothing_and_the_table_says_how_much_is_left(notebook: Notebook) -> None:
    body = "import time\nn = search([0, 1, 2])\nlength = len(shared)\nscore = n + 0.5\n"
    with GatewayClient.for_target(find_gateway()) as gateway:
        before = {row.run for row in gateway.runs().runs}
        shown = notebook.ok(f"%%gpu_sweep --estimate --metric score --max-gpus 2 --timeout 2h --gpus 2\n{body}")
        sent, start, size = shown.displays()
        assert "shared" in sent
        assert "2 of 4 simulated GPUs wanted" in start
        assert _unwrapped([size]) == (
            "3 trials with 2 GPUs each, at most 2 GPUs at once; at most 12 h of GPU time, by the --timeout of each"
        )
        unbound = notebook.run(f"%%gpu_sweep --estimate --metric other\n{body}")
        assert "and no other" in unbound.traceback
        assert {row.run for row in gateway.runs().runs} == before
    wait = "import os\nwhile n == 2 and not os.path.exists('enough'):\n    time.sleep(0.02)"
    begun = notebook.begin(f"%%gpu_sweep --metric score --max-gpus 1\n{body}{wait}")
    expected = "1 running · best score=0.5 (trial 0) · expected for the other 1: < 0.01 h of GPU time"
    notebook.until(lambda shown: f"2 complete · {expected}" in _unwrapped(shown.displays()))
    (notebook.folder / "enough").touch()
    assert "expected for" not in _unwrapped(notebook.end(begun).displays()[-1:])


def test_with_prices_the_table_and_the_page_say_them(own_home: HomePaths, tmp_path: Path) -> None:
    """The cost of the trials that are over, and the expected one of the others."""
    queues = tmp_path / "queues.yaml"
    queues.write_text('schema_version: 1\nrates: {"*": 36000}\nrate_unit: EUR\n')
    start_embedded(home=own_home, asked=StartOptions(simulated=1, queues=str(queues)), progress=print)
    notebook = Notebook(tmp_path)
    try:
        begun = notebook.begin(
            "%%gpu_sweep --metric score\nimport os, time\nn = search([0, 1])\nscore = n\n"
            "while n == 1 and not os.path.exists('enough'):\n    time.sleep(0.02)"
        )
        cost = r"h of GPU time, [\d.,]+ EUR"
        live = re.compile(rf"1 complete.* {cost} · expected for the other 1: .*{cost}")
        notebook.until(lambda shown: bool(live.search(_unwrapped(shown.displays()))))
        (tmp_path / "enough").touch()
        assert re.search(rf"{cost} in ", notebook.end(begun).displays()[-1])
        page = asyncio.run(_page(str(notebook.value("sweep.id"))))
        assert [trial.price.endswith(" EUR") for trial in page.trials] == [True, True]
    finally:
        notebook.close()


def test_an_interrupt_ends_all_trials_and_the_best_so_far_is_bound(notebook: Notebook) -> None:
    cell = (
        "%%gpu_sweep --metric score --max-gpus 1 --trials 3\nimport time\nn = search([0, 1, 2])\n"
        "while n:\n    time.sleep(0.02)\nscore = n + 0.5"
    )
    begun = notebook.begin(cell)
    notebook.until(lambda shown: any("1 complete" in text and "1 running" in text for text in shown.displays()))
    notebook.interrupt()
    shown = notebook.end(begun)
    assert shown.reply["ename"] == "KeyboardInterrupt"
    assert shown.displays()[-1].startswith("■ 3 trials · 1 complete · 1 failed · best score=0.5 (trial 0)")
    assert notebook.value("[score, sweep.done()]") == [0.5, True]
    with GatewayClient.for_target(find_gateway()) as gateway:
        assert gateway.status().gpus.held == 0


def test_a_trial_that_is_preempted_goes_on_in_the_same_round(notebook: Notebook, until: Until) -> None:
    """A run of high priority takes all GPUs meanwhile; no round runs twice, and the value is that of all of them."""
    cell = (
        "%%gpu_sweep --metric score --max --max-gpus 1\nimport os, time\n"
        "from jupyter_gpu_release import resumable\nn = search([1, 2])\nscore, rounds = 0.5, []\n"
        "for epoch in resumable(range(5)):\n    open(f'round-{n}-{epoch}', 'x').close()\n    rounds.append(epoch)\n"
        "    while (n, epoch) == (1, 2) and not os.path.exists('freed'):\n        time.sleep(0.02)\n"
        "    score += n * epoch"
    )
    begun = notebook.begin(cell)
    until((notebook.folder / "round-1-2").exists, "the first trial is in its third round")
    with GatewayClient.for_target(find_gateway()) as gateway, contextlib.closing(Notebook(notebook.folder)) as urgent:
        (trial,) = [row.run for row in gateway.runs().runs if row.state == "running"]
        taking = urgent.begin("%%gpu_train --priority high --gpus 4\nimport os\ndone = os.listdir('.')")
        until(lambda: gateway.run(trial).state == "yielding", "it is to be preempted")
        (notebook.folder / "freed").touch()
        urgent.end(taking)
        shown = notebook.end(begun)
        done = urgent.value("sorted(name for name in done if name.startswith('round'))")
        assert done == ["round-1-0", "round-1-1", "round-1-2"]
        assert [attempt.status for attempt in gateway.view(trial).attempts] == ["preempted"]
    assert shown.displays()[-1].startswith("✓ 2 trials · 2 complete · best score=20.5 (trial 1)")
    assert notebook.value("[list(sweep.trials['score']), sweep.load(0)['rounds'], rounds]") == [
        [10.5, 20.5],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
    ]


def test_its_trials_are_one_row_and_one_cancel_ends_them(notebook: Notebook) -> None:
    """By its id, from anywhere; it is interrupted as ■ does, and sends no other trial."""
    cell = (
        "%%gpu_sweep --metric score --trials 40 --name many\nimport time\nn = search(0, 99)\n"
        "while True:\n    time.sleep(0.02)\nscore = n"
    )
    begun = notebook.begin(cell)
    notebook.until(lambda shown: any("4 running" in text for text in shown.displays()))
    with GatewayClient.for_target(find_gateway()) as gateway:
        rows = [row for row in gateway.runs().runs if row.name.startswith("many ")]
        (sweep,) = {row.sweep for row in rows}
        listed = _command("runs")
        assert listed.stdout.count(sweep) == 1
        assert not any(row.run in listed.stdout for row in rows)
        ended = _command("cancel", sweep)
        assert "its trials are interrupted" in ended.stdout, ended.stderr
        shown = notebook.end(begun)
        assert f"sweep {sweep} was cancelled" in shown.traceback
        assert shown.displays()[-1].startswith("■ 40 trials")
        assert gateway.status().gpus.held == 0
        assert notebook.value("sweep.id") == sweep
        table = notebook.ok("%gpu_runs").displays()[-1]
        assert table.count(sweep) == 1
        wrong = _command("cancel", sweep)
        assert "there is no run" in wrong.stderr


def test_a_sweep_with_a_name_continues_after_its_kernel_was_killed(notebook: Notebook, until: Until) -> None:
    """Trials that went well are kept, those under way are tried again; the best of before is bound."""
    cell = (
        "%%gpu_sweep --metric score --max-gpus 1 --name 'kept one'\nimport os, time\nn = search([0, 1, 2])\n"
        "while n == 1 and not os.path.exists('go'):\n    time.sleep(0.02)\nscore = n + 0.5\npart = shared[:2]"
    )
    first = Notebook(notebook.folder)
    first.ok("import numpy\nshared = numpy.arange(300_000.0)")
    first.begin(cell)
    first.until(lambda shown: any("1 complete" in text and "1 running" in text for text in shown.displays()))
    assert "another sweep kept one goes on" in notebook.run(cell).traceback
    first.close()
    (notebook.folder / "go").touch()
    with GatewayClient.for_target(find_gateway()) as gateway:
        until(lambda: gateway.status().gpus.held == 0, "the kernel's trial has ended")
    size = _unwrapped(notebook.ok(cell.replace("--max-gpus 1", "--estimate")).displays()[-1:])
    assert size.startswith("2 trials with 1 GPU each, as many at once as GPUs come free; expected by earlier trials: ")
    shown = notebook.ok(cell)
    assert shown.displays()[-1].startswith("✓ 3 trials · 3 complete · best score=0.5 (trial 0) · 1 of them kept")
    assert notebook.value("[n, score, list(part)]") == [0, 0.5, [0.0, 1.0]]
    assert notebook.value("sorted(sweep.trials['score'])") == [0.5, 1.5, 2.5]
    assert "3 of them kept" in notebook.ok(cell).displays()[-1]
    other = notebook.run(cell.replace("[0, 1, 2]", "[0, 1, 3]"))
    assert "the study is of another space" in other.traceback


def test_a_detached_sweep_outlives_its_kernel_and_is_attached_by_its_name_and_its_run(
    notebook: Notebook, until: Until
) -> None:
    """Its table is shown again, ■ ends the watching alone, and in the end the best trial's names are bound."""
    cell = (
        "%%gpu_sweep --detach --metric score --max --max-gpus 1 --name 'left there'\nimport os, time\n"
        "n = search([0, 1, 2])\nwhile n == 1 and not os.path.exists('on'):\n    time.sleep(0.02)\n"
        "score = n + 0.5\npart = shared[:2]"
    )
    first = Notebook(notebook.folder)
    first.ok("import numpy\nshared = numpy.arange(300_000.0)")
    told = first.ok(cell).text("stdout")
    sweep = str(first.value("sweep.id"))
    assert f"sweep {sweep} goes on without this kernel; %gpu_attach {sweep} brings it back" in told
    first.close()
    assert f"run {sweep} drives it" in notebook.run(cell).traceback
    begun = notebook.begin("%gpu_attach left there")
    notebook.until(lambda shown: any("1 complete" in text and "1 running" in text for text in shown.displays()))
    notebook.interrupt()
    left = notebook.end(begun)
    assert left.reply["ename"] == "KeyboardInterrupt"
    assert f"sweep {sweep} goes on" in left.displays()[-1]
    with GatewayClient.for_target(find_gateway()) as gateway:
        assert gateway.run(sweep).state == "running"
        page = asyncio.run(_page(sweep))
        assert (page.run.run, page.run.detached, page.trials[0].metric) == (sweep, True, {"score": 0.5})
        assert page.run.title == "left there: 1 running, 1 succeeded"
        listed = _command("runs")
        assert listed.stdout.count(sweep) == 1
        (notebook.folder / "on").touch()
        shown = notebook.ok("%gpu_attach last")  # its newest run is a trial
        assert shown.displays()[-1].startswith("✓ 3 trials · 3 complete · best score=2.5 (trial 2)")
        assert notebook.value("[n, score, list(part), sweep.id]") == [2, 2.5, [0.0, 1.0], sweep]
        assert notebook.value("list(sweep.trials['score'])") == [0.5, 1.5, 2.5]
        until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")
    shown = notebook.ok(f"%gpu_attach {sweep}")
    assert shown.displays()[-1].startswith("✓ 3 trials · 3 complete · best score=2.5 (trial 2)")
    (notebook.folder / "on").unlink()
    assert "'not there' is not a run" in notebook.run("%gpu_attach not there").traceback


def test_a_detached_sweep_of_a_study_of_the_users_own_is_attached_in_another_kernel(notebook: Notebook) -> None:
    """Its table is read from the journal that the user has made."""
    first = Notebook(notebook.folder)
    first.ok(
        "import optuna, jupyter_gpu_release\nfrom optuna.storages import JournalStorage\n"
        "from optuna.storages.journal import JournalFileBackend\n"
        "study = optuna.create_study(storage=JournalStorage(JournalFileBackend('own.journal')), study_name='mine')\n"
        "space = [{'n': 1}, {'n': 2}]\ndef train(n):\n    return n\n"
        "sweep = jupyter_gpu_release.sweep(train, space, study=study, detach=True, name='own one')"
    )
    first.close()
    shown = notebook.ok("%gpu_attach own one")
    assert shown.displays()[-1].startswith("✓ 2 trials · 2 complete · best value=1 (trial 0)")
    assert notebook.value("[sweep.study.study_name, len(sweep.study.trials)]") == ["mine", 2]


def test_trials_that_come_to_nothing_are_told_and_their_error_once(notebook: Notebook) -> None:
    """A process that dies, NaN, no number, a metric that is not bound; without one that went well it fails."""
    cell = (
        "%%gpu_sweep --metric score --max\nimport os, signal\n"
        "kind = search(['dies', 'nan', 'text', 'none', 'raises', 'raises, too'{}])\nscore = 1.5\n"
        "if kind == 'dies':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "if kind.startswith('raises'):\n    raise KeyError('one')\n"
        "if kind == 'none':\n    del score\nelse:\n    score = {{'nan': float('nan'), 'text': 'much'}}.get(kind, score)"
    )
    shown = notebook.ok(cell.format(", 'good'"))
    assert notebook.value("[kind, score]") == ["good", 1.5]
    final = shown.displays()[-1]
    for words in (
        "1 complete · 6 failed",
        "KeyError: 'one' (2 times)",
        "returned NaN",
        "a str for 'score'",
        "no 'score'",
    ):
        assert words in final, final
    failed = notebook.run(cell.format(""))
    assert "no trial of sweep was completed" in failed.traceback
    assert failed.displays()[-1].startswith("✗ 6 trials · 6 failed")
    ended = notebook.run(cell.format("").replace("--max", "--max --max-failures 2 --max-gpus 1"))
    assert "the sweep ended after 2 failed trials" in ended.traceback


def test_the_page(notebook: Notebook) -> None:
    (cell,) = (block.text for block in blocks_in("use/sweeps.md", "") if block.text.startswith("%%gpu_sweep"))
    notebook.ok(cell)
    assert notebook.value("[len(sweep.trials), len(weights) == width, loss == sweep.best.value]") == [6, True, True]


def test_a_search_outside_of_a_sweep_says_where_it_belongs(notebook: Notebook) -> None:
    for cell in ("rate = search(1, 2)", "%%gpu_train\nrate = search(1, 2)"):
        failed = notebook.run(cell)
        assert failed.reply["ename"] == "NameError"
        assert "begin with `%%gpu_sweep`" in failed.text("stderr")


def test_what_is_wrong_is_said_before_anything_is_queued(notebook: Notebook) -> None:
    with GatewayClient.for_target(find_gateway()) as gateway:
        before = {row.run for row in gateway.runs().runs}
        for line, body, words in (
            ("", "x = search([1])", "the sweep has no metric"),
            ("--metric y", "y = 1", "nothing is searched in this cell"),
            ("--metric y", "y = search([1, 2]) + 1", "counts at the top level"),
            ("--metric y", "def f():\n    x = search([1])\ny = 1", "counts at the top level"),
            ("--metric y", "x = search([1])\nx = search([2])\ny = x", "line 3: x is searched twice"),
            ("--metric z", "x = search([1, 2])\ny = x", "the cell binds x, y, and no z"),
            ("--metric y --max --min", "y = x = search([1])", "looks for one of them"),
            ("--metric y --trials none", "x = search([1])\ny = x", "--trials none: not a number"),
            ("--metric y --trials 3", "x = search([1, 2])\ny = x", "the space has 2 points"),
            ("--metric y", "x = search(2, 1)\ny = x", "the range from 2 to 1 is empty"),
            ("--metric y", "x = search(0.1, 1)\ny = x", "the space has no end"),
            ("--metric y", "x = search(unknown)\ny = x", "name 'unknown' is not defined"),
            ("--metric y", "x = search(3)\ny = x", "neither a range nor a list"),
            ("--metric y", "x = search()\ny = x", "missing 1 required positional argument"),
            ("--metric y --async", "x = search([1])\ny = x", "--async: there is no such option"),
            ("--metric y --pruner early", "x = search([1])\ny = x", "there is none of that name"),
            ("--metric y", "x = search([1]\ny = x", "SyntaxError"),
        ):
            failed = notebook.run(f"%%gpu_sweep {line}\n{body}")
            assert words in failed.traceback, (line, body, failed.traceback)
        assert {row.run for row in gateway.runs().runs} == before
    said = notebook.run("from jupyter_gpu_release import search\nx = search(1, 2)")
    assert "write %%gpu_sweep above the cell" in said.traceback
