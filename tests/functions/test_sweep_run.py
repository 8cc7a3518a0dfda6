"""A sweep whose driver is a run on the cluster, from a plain script: ``detach``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from functions_bed import StartScript

from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.rest import RunRow

pytestmark = pytest.mark.thorough
Until = Callable[[Callable[[], object], str], None]
_HEAD = "from jupyter_gpu_release import report, sweep\n"
_SWEEP = """
import tempfile
folder = os.getcwd()
os.makedirs(f"{folder}/begun", exist_ok=True)
def space(trial):
    with open(f"{folder}/driver", "w") as file:
        file.write(str(os.getpid()))
    return {"n": trial.suggest_int("n", 0, 9999)}
def train(n):
    tempfile.mkstemp(dir=f"{folder}/begun")
    report(0, 0.5)  # always the same: none is pruned
    if len(os.listdir(f"{folder}/begun")) > 2:
        while not os.path.exists(f"{folder}/go"):
            time.sleep(0.02)
    return {"score": n, "twice": [n, n]}
swept = sweep(train, space, metric="score", mode="max", trials=6, max_gpus=2, name=NAME, detach=True)
print(swept.id, flush=True)
"""


def _trials(gateway: GatewayClient, sweep: str) -> list[RunRow]:
    return [row for row in gateway.runs().runs if row.sweep == sweep and row.run != sweep]


def test_a_driver_that_is_killed_is_followed_by_another_which_counts_nothing_twice(
    start: StartScript, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    """Two trials are over and two run when it is killed with -9: six have begun in the end, and GPUs are free."""
    end = """
best = swept.result()
table = swept.trials
print(json.dumps([best.value, sorted(table["state"]), best.value == float(table["score"].max()), swept.load()["twice"],
                  [int(steps) for steps in table["steps"]], bool((table["gpu_seconds"] > 0).all()), repr(swept)]))
"""
    script = start(_HEAD + _SWEEP.replace("NAME", "'killed one'") + end)
    sweep = script.line()
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and len(list(begun.iterdir())) == 4, "two are over, two run")
    os.kill(int((tmp_path / "driver").read_text()), signal.SIGKILL)
    until(lambda: len(gateway.view(sweep).attempts) == 1 and gateway.run(sweep).state == "running", "the next drives")
    (tmp_path / "go").touch()
    (value, states, is_best, loaded, steps, has_seconds, shown), _ = script.end()
    assert (states, is_best, has_seconds) == (["complete"] * 6, True, True)
    assert (loaded, steps) == ([value, value], [1] * 6)
    assert shown.startswith("<sweep of killed one: 6 trials, 6 complete, best score=")
    assert len(list(begun.iterdir())) == 6
    rows = _trials(gateway, sweep)
    assert [row.state for row in rows] == ["succeeded"] * 6
    assert {row.priority for row in rows} == {"low"}
    driver = gateway.run(sweep)
    assert (driver.state, driver.gpus, driver.detached) == ("succeeded", 0, True)
    until(lambda: gateway.status().gpus.held == 0, "all GPUs are free")


def test_it_outlives_its_script_and_is_cancelled_as_a_whole(
    start: StartScript, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    """While it goes on another one of its name is refused; after its end that keeps what went well."""
    again = """
def said(**more):
    try:
        sweep(train, space, metric="score", mode="max", trials=3, name="left alone", **more)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print(json.dumps([said(), said(detach=True), said(detach=True, study=__import__("optuna").create_study())]))
"""
    first = start(_HEAD + _SWEEP.replace("NAME", "'left alone'") + "os._exit(0)")
    sweep = first.line()
    until(lambda: first.process.poll() == 0, "the script has ended")
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and len(list(begun.iterdir())) == 4, "it goes on")
    definitions = _SWEEP.partition("swept =")[0]
    (plain, detached, own), _ = start(_HEAD + definitions + again).end()
    for text in (plain, detached):
        assert text.startswith("ConflictError: another sweep left alone goes on"), text
        assert sweep in text
    assert own.startswith("OptionError: a sweep that is detached has its study on the store")
    gateway.cancel(sweep)
    until(lambda: gateway.run(sweep).state == "cancelled", "its driver has ended")
    until(lambda: gateway.status().gpus.held == 0 and not gateway.status().queue, "nothing is left of it")
    assert {row.state for row in _trials(gateway, sweep)} == {"succeeded", "cancelled"}
    (tmp_path / "go").touch()
    more = "swept = sweep(train, space, metric='score', mode='max', trials=3, name='left alone')\nswept.result()\n"
    (states,), _ = start(_HEAD + definitions + more + "print(json.dumps([list(swept.trials['state'])]))").end()
    assert states == ["complete"] * 3
    assert len(list(begun.iterdir())) == 5
