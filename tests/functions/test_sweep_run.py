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
own = __import__("optuna").create_study(direction="maximize")
print(json.dumps([said(), said(detach=True), said(detach=True, study=own)]))
"""
    first = start(_HEAD + _SWEEP.replace("NAME", "'left alone'") + "os._exit(0)")
    sweep = first.line()
    until(lambda: first.process.poll() == 0, "the script has ended")
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and len(list(begun.iterdir())) == 4, "it goes on")
    definitions = _SWEEP.partition("swept =")[0]
    texts, _ = start(_HEAD + definitions + again).end()
    for text in texts:
        assert text.startswith("ConflictError: another sweep left alone goes on"), text
        assert sweep in text
    gateway.cancel(sweep)
    until(lambda: gateway.run(sweep).state == "cancelled", "its driver has ended")
    until(lambda: gateway.status().gpus.held == 0 and not gateway.status().queue, "nothing is left of it")
    assert {row.state for row in _trials(gateway, sweep)} == {"succeeded", "cancelled"}
    (tmp_path / "go").touch()
    more = "swept = sweep(train, space, metric='score', mode='max', trials=3, name='left alone')\nswept.result()\n"
    (states,), _ = start(_HEAD + definitions + more + "print(json.dumps([list(swept.trials['state'])]))").end()
    assert states == ["complete"] * 3
    assert len(list(begun.iterdir())) == 5


_OWN = """
import optuna, warnings
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
def train(n):
    return n
def swept(study, trials=2, **more):
    return sweep(train, {"n": (0, 99)}, mode="max", trials=trials, detach=True, study=study, **more)
"""


def test_a_study_of_the_users_own_is_used_where_it_lies(start: StartScript) -> None:
    """Others use it at the same time: their trial is left alone, and theirs do not count."""
    text = """
storage = JournalStorage(JournalFileBackend("own.journal"))
study = optuna.create_study(storage=storage, study_name="mine", direction="maximize")
study.add_trial(optuna.create_trial(params={"n": 7}, distributions={"n": optuna.distributions.IntDistribution(0, 99)},
                                    value=7.0))
theirs = study.ask()
first, second = swept(study), swept(study, trials=1, name="more")
values = [first.result().value, second.result().value]
print(json.dumps([len(first.trials), len(second.trials), first.study is study,
                  sorted(trial.state.name for trial in study.trials),
                  values == [float(each.trials["value"].max()) for each in (first, second)]]))
"""
    (of_first, of_second, is_own, states, is_best), _ = start(_HEAD + _OWN + text).end()
    assert (of_first, of_second, is_own, is_best) == (2, 1, True, True)
    assert states == ["COMPLETE"] * 4 + ["RUNNING"]


def test_a_study_in_memory_is_copied_and_one_that_nodes_cannot_open_is_said(
    start: StartScript, gateway: GatewayClient, tmp_path: Path
) -> None:
    """The copy has what the sampler shall know; the user's own stays as it is."""
    text = """
own = optuna.create_study(direction="maximize", sampler=optuna.samplers.BruteForceSampler())
own.enqueue_trial({"n": 98})
own.optimize(lambda trial: trial.suggest_int("n", 0, 99), n_trials=1)
own.enqueue_trial({"n": 97})
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    copied = swept(own, name="copied one")
copied.result()
def said(study, **more):
    try:
        return swept(study, **more).result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
lost = optuna.create_study(storage=JournalStorage(JournalFileBackend("lost.journal")), direction="maximize")
os.rename("lost.journal", "hidden.journal")
print(json.dumps([[str(one.message) for one in caught if "in memory" in str(one.message)],
                  list(copied.trials["params_n"])[0], len(copied.trials), len(copied.study.trials), len(own.trials),
                  said(own, name="copied one"), said(lost)]))
"""
    (told, first, of_sweep, in_study, in_own, again, lost), _ = start(_HEAD + _OWN + text).end()
    assert len(told) == 1
    assert "copied to the store" in told[0]
    assert (first, of_sweep, in_study, in_own) == (97, 2, 3, 2)
    assert again.startswith("OptionError: study=: the store has a study of sweep copied one already")
    assert "lost.journal" in lost
