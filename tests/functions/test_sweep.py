"""``sweep``: trials of one function, from a plain script on a real cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from doc_blocks import blocks_in
from functions_bed import StartScript

from jupyter_gpu_release.cell_api.report import report
from jupyter_gpu_release.cell_api.search import search
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.presentation.wording import state_words, word_of
from jupyter_gpu_release.protocol.rest import RunRow

Until = Callable[[Callable[[], object], str], None]
_HEAD = "from jupyter_gpu_release import report, sweep\n"


def _rows(gateway: GatewayClient, name: str) -> list[RunRow]:
    return [row for row in gateway.runs().runs if row.name.startswith(name)]


@pytest.mark.slow("a script as users start it, a run for each trial")
def test_the_best_of_all_points_is_found(start: StartScript, gateway: GatewayClient, until: Until) -> None:
    """Each point once, each in a run of low priority; results come by reference; all GPUs are free at the end."""
    text = """
import numpy
shared = numpy.arange(300_000.0)
def train(width, depth, offset):
    return {"score": width * depth + offset, "first": shared[:width * 10_000]}
swept = sweep(train, {"width": [1, 2, 3], "depth": [1, 2]}, metric="score", mode="max", offset=10, name="by points")
best, table = swept.result(), swept.trials
lengths = [len(swept.load(number)["first"]) for number in (None, 0)]
print(json.dumps([best.parameters, best.value, *lengths, best.run in set(table["run"]),
                  sorted(table["score"]), list(table["state"]), repr(swept), swept.cancel(),
                  bool((table["gpu_seconds"] > 0).all())]))
"""
    (parameters, value, of_best, of_first, has_run, scores, states, shown, again, has_seconds), _ = start(
        _HEAD + text
    ).end()
    assert (parameters, value) == ({"width": 3, "depth": 2}, 16.0)
    assert (of_best, of_first) == (30_000, 10_000)
    assert scores == sorted(width * depth + 10.0 for width in (1, 2, 3) for depth in (1, 2))
    assert (has_run, states, again, has_seconds) == (True, ["complete"] * 6, False, True)
    assert shown == "<sweep of by points: 6 trials, 6 complete, best score=16 (trial 5)>"
    rows = _rows(gateway, "by points")
    assert sorted(row.name for row in rows) == [f"by points {number}" for number in range(6)]
    assert {row.priority for row in rows} == {"low"}
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


@pytest.mark.thorough
def test_a_trial_that_does_badly_is_ended_early(start: StartScript, gateway: GatewayClient, until: Until) -> None:
    """It would never end by itself; the report is what ends it."""
    text = """
import optuna
def train(rate):
    for step in range(3):
        report(step, rate)
    while rate > 1:
        time.sleep(0.02)
    return rate
study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1))
swept = sweep(train, [{"rate": 0.5}, {"rate": 2.0}], study=study, max_gpus=1)
best = swept.result()
print(json.dumps([best.parameters, list(swept.trials["state"]), int(swept.trials["steps"][0]),
                  [trial.state.name for trial in study.trials], swept.trials["run"][1]]))
"""
    (parameters, states, steps, of_study, run), _ = start(_HEAD + text).end()
    assert (parameters, states, steps) == ({"rate": 0.5}, ["complete", "pruned"], 3)
    assert of_study == ["COMPLETE", "PRUNED"]
    (row,) = [row for row in gateway.runs().runs if row.run == run]
    assert (word_of(row), state_words(row)) == ("pruned", "pruned: other trials do better")
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


@pytest.mark.thorough
def test_a_trial_that_is_preempted_goes_on_from_its_checkpoint(start: StartScript, gateway: GatewayClient) -> None:
    """The same script's urgent call takes all GPUs meanwhile; no round runs twice."""
    text = """
from jupyter_gpu_release import checkpoint, restore
def train(n):
    state = restore() or {"next": 0, "sum": 0}
    for step in range(state["next"], 4):
        open(f"round-{n}-{step}", "x").close()
        if (n, step) == (1, 1):
            while not os.path.exists("go"):
                time.sleep(0.02)
        state = {"next": step + 1, "sum": state["sum"] + n * step}
        checkpoint(state)
    return state["sum"]
def names():
    return sorted(name for name in os.listdir(".") if name.startswith("round"))
swept = sweep(train, {"n": [1, 2]}, mode="max", max_gpus=1)
while not os.path.exists("round-1-1"):
    time.sleep(0.02)
taking = launch(names, priority="high", gpus=4)
while swept.all_trials[0].word != "yielding":
    time.sleep(0.02)
open("go", "w").close()
done = taking.result()
swept.result()
print(json.dumps([done, list(swept.trials["value"]), names(), swept.trials["run"][0]]))
"""
    (meanwhile, values, rounds, run), _ = start(_HEAD + text).end()
    assert meanwhile == ["round-1-0", "round-1-1"]
    assert values == [6.0, 12.0]
    assert len(rounds) == 8
    assert len(gateway.view(run).attempts) == 1


@pytest.mark.thorough
def test_failed_trials_are_counted_and_do_not_end_it(start: StartScript) -> None:
    """Exceptions, NaN, no metric, no number, a process that dies; each error is said once, with how often."""
    text = """
def train(kind):
    if kind == "raises" or kind == "raises, too":
        raise KeyError("one")
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"nan": {"score": float("nan")}, "none": {"loss": 1.0}, "text": "much"}.get(kind, {"score": 2.0})
kinds = ["raises", "raises, too", "dies", "nan", "none", "text", "good"]
swept = sweep(train, {"kind": kinds}, metric="score", mode="max")
table = (best := swept.result()) and swept.trials.set_index("params_kind")
few = sweep(train, {"kind": ["raises", "raises, too", "none", "good"]}, metric="score", max_failures=2, max_gpus=1)
def said(swept):
    try:
        swept.result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print(json.dumps([best.parameters, dict(table["state"]), dict(table["error"]), repr(swept), said(few), len(few.trials),
                  said(sweep(train, {"kind": ["nan"]}, metric="score"))]))
"""
    (best, states, errors, shown, ended, count, none), _ = start(_HEAD + text).end()
    assert best == {"kind": "good"}
    assert states == {kind: "complete" if kind == "good" else "failed" for kind in states}
    assert errors["raises"] == "KeyError: 'one'"
    assert "NaN" in errors["nan"]
    assert "returned no 'score' but loss" in errors["none"]
    assert "returned a str for 'score', no number" in errors["text"]
    assert errors["dies"].startswith(("RunLostError", "RunFailedError"))
    assert "KeyError: 'one' (2 times)" in shown
    assert ended.startswith("RunFailedError: the sweep ended after 2 failed trials: KeyError: 'one' (2 times)")
    assert count == 2
    assert none.startswith("RunFailedError: no trial of train was completed: RunFailedError: train() returned NaN")


@pytest.mark.thorough
def test_a_space_by_a_function_and_a_study_that_goes_on(start: StartScript) -> None:
    """The user's own study with a journal: another sweep goes on with it, and one of another space is refused."""
    text = """
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
def space(trial):
    kind = trial.suggest_categorical("kind", ["a", "b"])
    return {"kind": kind, "size": trial.suggest_int("size", 1, 9)} if kind == "a" else {"kind": kind}
def train(kind, size=0):
    return size
def study():
    storage = JournalStorage(JournalFileBackend("journal"))
    return optuna.create_study(storage=storage, study_name="mine", load_if_exists=True)
first = sweep(train, space, trials=2, study=study()).result()
second = sweep(train, space, trials=2, study=study())
second.result()
own = optuna.create_study()
sweep(train, {"size": (1, 9)}, kind="a", trials=1, study=own).result()
try:
    sweep(train, {"size": (1, 5)}, kind="a", trials=1, study=own)
except Exception as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps([list(map(int, second.trials["trial"])), len(study().trials), said]))
"""
    (numbers, count, said), _ = start(_HEAD + text).end()
    assert (numbers, count) == ([2, 3], 4)
    assert said.startswith("OptionError: the study is of another space: size=")


@pytest.mark.thorough
def test_trials_that_are_kept_are_asked_for_at_once_and_their_results_when_they_are_loaded(start: StartScript) -> None:
    text = """
from jupyter_gpu_release.client.rest import GatewayClient
def train(n):
    return {"value": n, "twice": [n, n]}
def swept(points):
    return sweep(train, {"n": points}, mode="max", name="asked once")
swept([1, 2, 3]).result()
asked, plain = [], GatewayClient._send
def counted(self, request):
    asked.append(request.path)
    return plain(self, request)
GatewayClient._send = counted
again = swept([1, 2, 3])
best, before = again.result(), len(asked)
loaded = [again.load()["twice"], again.load(0)["twice"]]
print(json.dumps([best.value, loaded, bool((again.trials["gpu_seconds"] > 0).all()), list(again.trials["state"]),
                  [path for path in asked if path.startswith("/v1/runs")], best.run, again.trials["run"][0]]))
"""
    (value, loaded, has_seconds, states, asked, best, first), _ = start(_HEAD + text).end()
    assert (value, loaded, has_seconds, states) == (3.0, [[3, 3], [1, 1]], True, ["complete"] * 3)
    assert asked == ["/v1/runs", f"/v1/runs/{best}/outcome", f"/v1/runs/{first}/outcome"]


@pytest.mark.thorough
def test_cancel_ctrl_c_and_a_killed_script_free_all_gpus(
    start: StartScript, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    text = """
def train(n):
    open(f"began-{n}", "w").close()
    while n:
        time.sleep(0.02)
    return n
swept = sweep(train, {"n": [0, 1, 2]}, max_gpus=1)
while not os.path.exists("began-1"):
    time.sleep(0.01)
swept.cancel()
try:
    swept.result()
except Exception as error:
    said = type(error).__name__
print(json.dumps([said, swept.best.value, list(swept.trials["state"])]))
"""
    (said, value, states), _ = start(_HEAD + text).end()
    assert (said, value, states) == ("RunCancelledError", 0.0, ["complete", "failed"])
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")
    (tmp_path / "began-1").unlink()
    script = start(_HEAD + text.replace("swept.cancel()", "os.kill(os.getpid(), signal.SIGKILL)"))
    until(lambda: script.process.poll() == -signal.SIGKILL, "the script is killed")
    until(lambda: gateway.status().gpus.held == 0 and not gateway.status().queue, "nothing is left of it")
    assert os.path.exists(tmp_path / "began-1")


def test_what_is_wrong_is_said_before_anything_is_queued(start: StartScript, gateway: GatewayClient) -> None:
    text = """
import optuna
def train(lr, fixed=1):
    return lr
def said(*args, **kwargs):
    try:
        sweep(train, *args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
maximised = optuna.create_study(direction="maximize")
print(json.dumps([said({"lr": (2, 1)}, trials=1), said({"lr": (0, 1, "log")}, trials=1), said({"lr": (0, "x")}),
    said({"lr": []}), said({"lr": 3}), said({}), said("lr"), said([{"lr": object()}]), said({"lr": (0, 1)}),
    said({"lr": [1, 2]}, trials=3), said({"lr": [1]}, mode="best"), said({"lr": [1]}, trials=0),
    said({"lr": [1]}, max_gpus=1, gpus=2), said({"lr": [1]}, pruner="early"), said({"lr": [1]}, study=maximised),
    said({"lr": [1]}, study=maximised, pruner="median"), said({"rate": [1]}), said({"lr": [1]}, lr=2),
    said({"lr": [1]}, detach=True, name="own", study=maximised), said({"lr": [1], "fixd": [2]}),
    said({"lr": [1]}, sedn="x"), said({"lr": [1]}, metric="state"), said({"lr": [1]}, sampler="tpe"),
    said({"lr": [1]}, pruner=optuna.pruners.MedianPruner), said({"lr": [1]}, study="mine"),
    said({"lr": [1]}, gpus=1.5)]))
"""
    before = {row.run for row in gateway.runs().runs}
    texts, _ = start(_HEAD + text).end()
    assert {row.run for row in gateway.runs().runs} == before
    expected = [
        "lr: the range from 2 to 1 is empty",
        "lr: a logarithmic range cannot begin at 0",
        "lr: 'x' is no bound of a range",
        "lr=[]: no choices",
        "lr=3: no range and no choices",
        "the space is empty",
        "the space is a str",
        "parameter lr: a value of type object cannot be searched",
        "nobody knows how many trials",
        "trials=3, and the space has 2 points",
        "mode='best'",
        "trials=0: not a number from 1 on",
        "max_gpus=1, and a trial takes 2",
        "pruner='early'",
        "the study does not minimize",
        "a study= has its own sampler and pruner",
        "missing a required argument: 'lr'",
        "lr is searched and given as well",
        "the study does not minimize",
        "'fixd'",
        "'sedn'",
        "metric='state': a column",
        "sampler='tpe': none of Optuna's samplers",
        "none of Optuna's pruners",
        "study='mine': none of Optuna's studies",
        "--gpus 1.5: several GPUs are whole ones",
    ]
    for said, words in zip(texts, expected, strict=True):
        assert words in str(said)
        assert said.startswith(("OptionError: ", "WrongCallError: ")), said


@pytest.mark.thorough
def test_the_page(start: StartScript) -> None:
    """Its blocks, one after the other; called again the last one goes on."""
    (first,) = (block.text for block in blocks_in("use/sweeps.md", "python"))
    (second,) = (block.text for block in blocks_in("use/kept-sweeps.md", "python"))
    facts = "print(json.dumps([best.parameters['width'] == len(weights), len(sweep.trials), len(study.trials)]))\n"
    assert start(first + second + second + facts).end()[0] == [True, 6, 4]


def test_a_report_is_checked_where_it_is_made() -> None:
    """Also outside of a sweep, where nobody listens."""
    report(3, 0.5)
    report(numpy.int64(3), 0.5)  # type: ignore[arg-type]
    for step, value in ((-1, 0.5), (1.5, 0.5), (True, 0.5), (1, "much"), (1, None)):
        with pytest.raises(OptionError, match=r"report\(") as refused:
            report(step, value)  # type: ignore[arg-type]
        assert refused.value.hint.startswith("report(epoch, ")


def test_a_call_of_search_outside_of_a_sweeps_cell_names_where_it_belongs() -> None:
    with pytest.raises(OptionError, match="at the top level of a `%%gpu_sweep` cell") as refused:
        search(1, 2)
    assert refused.value.hint.startswith("write %%gpu_sweep above the cell")
