# ruff: noqa: E501 - a cell is one string
"""``gpu_release.load``, ``publish`` and ``published``: results and news of runs by reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from background_bed import ASYNC, HELD, go, run_of
from kernel_bed import Notebook, Shown

from jupyter_gpu_release.client.autostart import Ready

pytestmark = pytest.mark.thorough

Open = Callable[[], Notebook]
IMPORT = "import jupyter_gpu_release as gpu_release\n"


def id_of(shown: Shown) -> str:
    facts = [m["content"].get("metadata", {}).get("jupyter_gpu_release") for m in shown.messages]
    found = [each["run"] for each in facts if each]
    return str(found[-1]) if found else shown.traceback.rpartition("run ")[2].split()[0]


@pytest.fixture
def store(cluster: Ready) -> Path:
    return Path(cluster.connection.store)


def is_written(store: Path, run: str) -> bool:
    """Tell if the run's end is in its manifest, which is written last."""
    manifest = store / "runs" / run / "manifest.json"
    return manifest.exists() and '"succeeded"' in manifest.read_text()


def script(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IMPORT + code],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_results_small_and_large_in_another_kernel_and_in_a_script(open_notebook: Open, tmp_path: Path) -> None:
    first, second = open_notebook(), open_notebook()
    small = id_of(first.ok("%%gpu_train\ntable, loss = {'a': [1]}, 0.5"))
    large = id_of(first.ok("%%gpu_train\nimport numpy as np\nbig = np.arange(1 << 20)"))
    second.ok(f"{IMPORT}results = gpu_release.load('{small}')\nlarge = gpu_release.load('{large}')['big']")
    assert second.value("[sorted(results), results['table'], results['loss'], len(results)]") == [
        ["loss", "table"],
        {"a": [1]},
        0.5,
        2,
    ]
    assert second.value("[int(large.sum()), large.flags.writeable]") == [(1 << 20) * ((1 << 20) - 1) // 2, True]
    assert "made no `nothing`" in second.run("results['nothing']").traceback
    code = f"print(gpu_release.load('{small}')['table'], int(gpu_release.load('{large}')['big'][-1]))"
    done = script(f"{code}\nprint(gpu_release.load('last').run)", tmp_path)
    assert done.stdout == f"{{'a': [1]}} {(1 << 20) - 1}\n{large}\n", done.stderr


def test_names_that_the_code_of_a_result_reads_and_that_are_not_here_are_said(open_notebook: Open) -> None:
    first, second = open_notebook(), open_notebook()
    first.ok(
        "SCALE = 3\ndef helper(x): return x * SCALE\nclass Net:\n    def __call__(self, x): return [helper(y) for y in range(x)]"
    )
    run = id_of(first.ok("%%gpu_train\nnet = Net()"))
    said = f"code from run {run} reads names that are not defined here: `helper` "
    plain = said.replace("`", "")  # a receipt's text
    shown = second.ok(f"{IMPORT}net = gpu_release.load('{run}')['net']")
    assert said + "(run the cells of its notebook that define them)" in shown.text("stderr")
    assert plain in second.ok(f"%gpu_attach {run}").receipt
    assert said + "(--in +helper sends one along)" in second.ok(f"%%gpu_train\n{IMPORT}gpu_release.load('{run}')").text(
        "stderr"
    )
    second.ok("def helper(x): return x")
    assert said not in second.ok(f"gpu_release.load('{run}')").text("stderr")
    assert plain not in second.ok(f"%gpu_attach {run}").receipt
    assert said not in first.ok(f"{IMPORT}gpu_release.load('{run}')").text("stderr")


def test_a_result_goes_into_the_next_gpu_cell_without_being_written_again(
    open_notebook: Open, store: Path, until: Any
) -> None:
    first, second = open_notebook(), open_notebook()
    large = id_of(first.ok("%%gpu_train\nimport numpy as np\nbig = np.random.default_rng(0).random(4 << 20)"))
    second.ok(f"{IMPORT}big = gpu_release.load('{large}')['big']")
    used = id_of(second.ok("%%gpu_train\ntotal = float(big.sum())"))
    until(lambda: is_written(store, used), "nothing in its folder changes any more")
    written = [path for path in (store / "runs" / used).rglob("*") if path.is_file() and path.stat().st_nlink == 1]
    assert sum(path.stat().st_size for path in written) < 4 << 20
    assert second.value("abs(total - float(big.sum())) < 1e-3")


def test_it_works_in_a_gpu_cell(open_notebook: Open) -> None:
    notebook = open_notebook()
    run = id_of(notebook.ok("%%gpu_train\nvalues = [1, 2, 3]"))
    last = "try:\n    gpu_release.load('last')\nexcept Exception as error:\n    why = str(error)"
    notebook.ok(f"%%gpu_train\n{IMPORT}more = sum(gpu_release.load('{run}')['values'])\n{last}")
    assert notebook.value("more") == 6
    assert "name the run's id" in notebook.value("why")


def test_without_a_gateway_the_store_is_read_with_a_warning(
    open_notebook: Open, store: Path, tmp_path: Path, until: Any
) -> None:
    notebook = open_notebook()
    run = id_of(notebook.ok("%%gpu_train\nvalues = [1, 2, 3]"))
    manifest = store / "runs" / run / "manifest.json"
    until(lambda: is_written(store, run), "the gateway's last word in the store")
    alone = {"JUPYTER_GPU_HOME": str(tmp_path / "nobody"), "JUPYTER_GPU_STORE": str(store)}
    done = script(f"print(gpu_release.load('{run}')['values'])", tmp_path, **alone)
    assert done.stdout == "[1, 2, 3]\n", done.stderr
    assert "by the manifest in the store" in done.stderr
    manifest.chmod(0o644)
    done = script(f"gpu_release.load('{run}')", tmp_path, **alone)
    assert "does not belong to you alone" in done.stderr
    manifest.chmod(0o600)
    content = json.loads(manifest.read_text())
    content["outcome"]["values"]["digest"] = "00" * 16
    manifest.write_text(json.dumps(content))
    done = script(f"gpu_release.load('{run}')", tmp_path, **alone)
    assert "is damaged" in done.stderr


def test_what_cannot_be_loaded_says_why(open_notebook: Open, store: Path) -> None:
    notebook = open_notebook()
    notebook.ok(IMPORT)

    def refused(run: str) -> tuple[str, str]:
        shown = notebook.run(f"gpu_release.load('{run}')")
        return shown.reply["ename"], shown.traceback

    assert refused("20000101-000000-00000000")[0] == "NoSuchRunError"
    assert "is not the id of a run" in refused("nonsense")[1]
    failed = notebook.run("%%gpu_train\nimport os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert refused(id_of(failed))[0] == "RunFailedError"
    salvaged = id_of(notebook.run("%%gpu_train\nbest = 1\n1 / 0"))
    assert notebook.value(f"[dict(gpu_release.load('{salvaged}')), gpu_release.load('{salvaged}').state]") == [
        {"best": 1},
        "failed",
    ]
    running = run_of(notebook.ok(ASYNC + HELD))
    assert refused(running)[0] == "StillTrainingError"
    go(notebook)
    notebook.ok("%gpu_wait")
    large = id_of(notebook.ok("%%gpu_train\nlarge = bytearray(3 << 20)"))
    graph = store / "runs" / large / "values.graph"
    graph.chmod(0o600)
    graph.write_bytes(graph.read_bytes()[:-100])
    assert refused(large)[0] == "StoreError"


PUBLISHING = """%%gpu_train --async
import os, time
import numpy as np
import jupyter_gpu_release as gpu_release
history, step, curve = [], 0, None
while not os.path.exists('go'):
    step += 1
    history.append(step)
    gpu_release.publish(step=step, history=history, curve=np.full(5000, float(step)))
    time.sleep(0.002)
gpu_release.publish(step=-1)
history = ['done']
"""


def test_a_cell_publishes_and_the_notebook_plots(open_notebook: Open, until: Any) -> None:
    notebook, other = open_notebook(), open_notebook()
    run = run_of(notebook.ok(PUBLISHING + "gpu_release.publish(unseen=__import__('threading').Lock())"))
    notebook.ok(IMPORT)

    def steps() -> list[int]:
        shown = notebook.run("print(step, history[-1], int(curve[0]))")
        return [int(word) for word in shown.text().split()]

    until(lambda: len(steps()) == 3, "the first values")
    first = steps()
    until(lambda: all(now > before for now, before in zip(steps(), first, strict=True)), "newer ones")
    assert notebook.value("gpu_release.published('step') > 0")
    other.ok(IMPORT)
    assert other.value(f"gpu_release.published('curve', run='{run}').shape") == [5000]
    assert other.run("gpu_release.published('step')").reply["ename"] == "NothingPublishedError"
    go(notebook)
    notebook.ok("%gpu_wait")
    assert notebook.value("[gpu_release.published('step'), history, step > first]".replace("first", str(first[0]))) == [
        -1,
        ["done"],
        True,
    ]
    assert other.value(f"gpu_release.published('step', run='{run}')") == -1
    assert any("unseen could not be published" in text for text in other.ok(f"%gpu_logs {run}").displays())


def test_outside_of_a_gpu_cell_publishing_does_nothing(open_notebook: Open, tmp_path: Path) -> None:
    notebook = open_notebook()
    notebook.ok(IMPORT + "gpu_release.publish(loss=1)")
    assert notebook.run("gpu_release.published('loss')").reply["ename"] == "NothingPublishedError"
    assert script("gpu_release.publish(loss=1)\nprint('fine')", tmp_path).stdout == "fine\n"
