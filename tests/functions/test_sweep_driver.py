"""The driver of a sweep: the real one, with Optuna and futures, whose runs end when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import optuna
import pytest

from jupyter_gpu_release.analysis.searches import find_searches
from jupyter_gpu_release.errors import ConflictError, OptionError, RunCancelledError, WrongCallError
from jupyter_gpu_release.functions import sweep_driver
from jupyter_gpu_release.functions.arguments import TrialCall
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.functions.kept_study import SweepFacts, kept_trials, own_trials
from jupyter_gpu_release.functions.search import Search
from jupyter_gpu_release.functions.search_space import SearchSpace, Space
from jupyter_gpu_release.functions.sweep_driver import SweepDriver, SweepPlan
from jupyter_gpu_release.functions.trial import SweepTrial
from jupyter_gpu_release.kernel.runs.trials import trial_of_cell
from jupyter_gpu_release.protocol.cell import CellPayload, Graph
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.submission.request import Submission

Until = Callable[[Callable[[], object], str], None]


class _Executor:
    """Sends nothing: each run holds its GPU until :meth:`end`."""

    def __init__(self, earlier: Mapping[str, str] | None = None) -> None:
        #: states of runs that were sent before
        self._earlier = earlier or {}
        self.runs: list[RunFuture[Any]] = []
        self.names: list[str] = []
        self.calls: list[str] = []
        #: of runs that are sent
        self.state = "running"
        self.heard: list[Any] = []
        self.told: list[int] = []
        self.state_of_earlier = "succeeded"
        #: sweeps of runs that were asked for together
        self.asked: list[set[str]] = []

    def session(self) -> None:
        """There is none."""

    def send(self, submission: Submission, name: str, heard: Any, _session: None) -> RunFuture[Any]:
        number = len(self.runs)
        view = RunView(f"r{number}", "", self.state)
        self.names.append(submission.request.name)
        self.calls.append(submission.request.call)
        self.runs.append(RunFuture(cast(Any, self), view, name, lambda _: self.told.append(number)))
        self.heard.append(heard)
        return self.runs[-1]

    def value_of(self, view: RunView, _name: str) -> int:
        return int(view.run[1:])

    def with_traceback(self, failure: BaseException, _view: RunView) -> BaseException:
        return failure

    def earlier(self, run: str, name: str) -> RunFuture[Any]:
        future: RunFuture[Any] = RunFuture(
            cast(Any, self), RunView(run, "", self._earlier.get(run, self.state_of_earlier)), name, lambda _: None
        )
        future.update_view(future.view)
        return future

    def earlier_trials(self, runs: Mapping[str, str], name: str) -> dict[str, RunFuture[Any]]:
        self.asked.append(set(runs.values()))
        return {run: self.earlier(run, name) for run in runs}

    def follow(self, run: str, name: str, heard: Any) -> RunFuture[Any]:
        number = len(self.runs)
        self.runs.append(
            RunFuture(cast(Any, self), RunView(run, "", "running"), name, lambda _: self.told.append(number))
        )
        self.heard.append(heard)
        return self.runs[-1]

    def end(self, number: int) -> None:
        run = f"r{number}"
        self.runs[number].update_view(RunView(run, "", "succeeded", gone_at=1.0, outcome=Outcome("ok")))


def _train(x: int) -> None:
    """Never called."""


def _driver(
    space: Space,
    executor: _Executor,
    *,
    study: Any = None,
    trials: int = 3,
    at_once: int = 2,
    failures: int = 10,
    kept: Sequence[SweepTrial] = (),
    sweep: str = "",
) -> SweepDriver:
    call = TrialCall(_train, (), {}, lambda *_: "")
    study = study or optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1))
    check, where = call.check_parameters, SearchSpace(space)
    plan = SweepPlan(call.written, "train", study, where, "value", trials, at_once, failures, kept, check)
    request = RunRequest("r", "s", ResourceAsk(), encode(CellPayload("")))
    return SweepDriver(plan, cast(Any, executor), Submission(request, cast(Any, None)), sweep)


def _finish(driver: SweepDriver, executor: _Executor, until: Until) -> list[Mapping[str, Any]]:
    def is_over() -> bool:
        for number in range(len(executor.runs)):
            executor.end(number)
        return driver.over.is_set()

    until(is_over, "the sweep is over")
    return [trial.parameters for trial in driver.trials]


def test_the_value_that_the_rank_has_found_is_taken_and_nothing_loaded(
    until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank is told what is searched for; only where it finds none, the results say why."""
    executor, loaded, sent = _Executor(), [], []
    monkeypatch.setattr(executor, "value_of", lambda view, _: loaded.append(view.run) or 5.0)
    send = executor.send
    monkeypatch.setattr(executor, "send", lambda made, *more: sent.append(made.request.payload) or send(made, *more))
    driver = _driver({"x": [1, 2]}, executor, trials=2)
    driver.begin()
    until(lambda: len(executor.runs) == 2, "both trials are sent")
    view = RunView("r0", "", "succeeded", gone_at=1.0, outcome=Outcome("ok", metric={"value": 7.5}))
    executor.runs[0].update_view(view)
    executor.end(1)
    until(driver.over.is_set, "the sweep is over")
    assert [trial.value for trial in driver.trials] == [7.5, 5.0]
    assert loaded == ["r1"]
    payloads = [decode(payload, CellPayload) for payload in sent]
    assert {payload.metric for payload in payloads} == {"value"}
    assert [(payload.env["WANDB_NAME"], payload.env["WANDB_RUN_GROUP"]) for payload in payloads] == [
        ("train 0", "train"),
        ("train 1", "train"),
    ]


def test_an_error_leaves_no_trial_behind(until: Until) -> None:
    """It is told once the others have ended; their values are in the study, and cancel reaches them."""

    def space(trial: Any) -> dict[str, Any]:
        if trial.number == 2:
            raise ValueError("the user's own")
        return {"x": trial.suggest_int("x", 0, 9)}

    executor = _Executor()
    driver = _driver(space, executor, trials=5, at_once=3)
    driver.begin()
    until(lambda: executor.told == [0, 1], "both are interrupted")
    assert not driver.over.is_set()
    driver.cancel()
    until(lambda: executor.told == [0, 1, 0, 1], "both are killed")
    _finish(driver, executor, until)
    assert isinstance(driver.failure, ValueError)
    assert [trial.state.name for trial in driver.plan.study.trials] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert not hasattr(driver, "_template")  # nor what was sent


def test_what_the_space_itself_prunes_is_skipped(until: Until) -> None:
    def space(trial: Any) -> dict[str, Any]:
        if trial.number in (0, 2):
            raise optuna.TrialPruned
        return {"x": trial.suggest_int("x", 0, 9)}

    executor = _Executor()
    driver = _driver(space, executor, trials=4)
    driver.begin()
    assert len(_finish(driver, executor, until)) == 2
    assert driver.failure is None
    assert [trial.state.name for trial in driver.plan.study.trials] == ["PRUNED", "COMPLETE"] * 2


def test_what_the_study_was_told_to_try_comes_besides_the_points(until: Until) -> None:
    study, executor = optuna.create_study(), _Executor()
    study.enqueue_trial({"x": 1})
    driver = _driver({"x": [1, 2]}, executor, study=study, trials=2)
    driver.begin()
    assert _finish(driver, executor, until) == [{"x": 1}, {"x": 1}, {"x": 2}]


def test_of_a_list_the_first_are_tried_once_each(until: Until) -> None:
    executor = _Executor()
    driver = _driver([{"x": number} for number in range(9)], executor, trials=5)
    driver.begin()
    assert _finish(driver, executor, until) == [{"x": number} for number in range(5)]
    assert executor.names == [f"train {number}" for number in range(5)]
    assert executor.calls == [f"train {number}(x={number})" for number in range(5)]


def test_parameters_that_the_function_does_not_take_are_refused_before_anything_is_sent() -> None:
    executor = _Executor()
    with pytest.raises(WrongCallError):
        _driver([{"y": 1}], executor).begin()
    assert executor.runs == []


def test_one_trial_waits_for_its_gpu_at_most(until: Until) -> None:
    executor = _Executor()
    executor.state = "queued"
    driver = _driver({"x": (0, 9)}, executor, at_once=3)
    driver.begin()
    assert (len(executor.runs), driver._has_place) == (1, False)
    executor.runs[0].update_view(RunView("r0", "", "running"))
    until(lambda: len(executor.runs) == 2, "the next one is sent")
    _finish(driver, executor, until)


def test_a_trial_that_writes_its_results_holds_no_place(until: Until) -> None:
    """Its GPU is free, and a slow store shall not keep the next trial from it."""
    executor = _Executor()
    driver = _driver({"x": (0, 9)}, executor, at_once=1)
    driver.begin()
    assert not driver._has_place
    written = Outcome("ok", values=Graph(file="values.graph"))
    executor.runs[0].update_view(RunView("r0", "", "persisting", gone_at=1.0, outcome=written))
    until(lambda: len(executor.runs) == 2, "the next one is sent")
    assert driver.trials[0].state == "running"
    _finish(driver, executor, until)


def test_it_ends_with_the_last_failure_that_it_may_have(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = _Executor()
    monkeypatch.setattr(executor, "value_of", lambda *_: 1 / 0)
    driver = _driver({"x": list(range(9))}, executor, trials=9, at_once=1, failures=2)
    driver.begin()
    assert len(_finish(driver, executor, until)) == 2
    assert "after 2 failed trials" in str(driver.failure)


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_was_written_for_its_trials_goes_with_it(is_refused: bool, until: Until, tmp_path: Path) -> None:
    paths, executor = create_run_folder(tmp_path, new_run_id()), _Executor()
    paths.inputs.write_text("inputs")
    driver = _driver({"x": [1]}, executor, trials=1)
    driver._template.paths = paths
    if is_refused:
        executor.send = lambda *_: 1 / 0  # type: ignore[assignment,method-assign]
        with pytest.raises(ZeroDivisionError):
            driver.begin()
    else:
        driver.begin()
        _finish(driver, executor, until)
    assert not paths.folder.exists()


def test_what_is_heard_comes_before_another_trial(until: Until) -> None:
    """There is place for all, and after the first the sweep is cancelled."""
    asked, go_on = threading.Event(), threading.Event()

    def space(trial: Any) -> dict[str, Any]:
        if trial.number == 1:
            asked.set()
            go_on.wait()
        return {"x": trial.suggest_int("x", 0, 9)}

    executor = _Executor()
    driver = _driver(space, executor, trials=9, at_once=9)
    driver.begin()
    asked.wait()
    driver.cancel()
    go_on.set()
    until(lambda: executor.told == [0, 1], "both are interrupted")
    assert len(_finish(driver, executor, until)) == 2


def test_of_a_gang_the_first_rank_reports(until: Until) -> None:
    """Others see other data."""
    executor = _Executor()
    driver = _driver({"x": (0, 9)}, executor, trials=1)
    driver.begin()
    values = [
        Event(1, 0.0, "report", {"step": 0, "value": 0.5, "rank": 1}),
        Event(2, 0.0, "report", {"step": 0, "value": 0.25}),
        Event(3, 0.0, "report", {"step": 0, "value": 0.75}),  # said again
    ]
    executor.heard[0](values)
    _finish(driver, executor, until)
    assert [trial.steps for trial in driver.trials] == [{0: 0.25}]


def test_a_trial_that_came_to_nothing_does_not_make_the_study_one_of_another_space() -> None:
    """Its process died between two parameters."""
    study = optuna.create_study()
    study.ask().suggest_int("x", 0, 9)
    space = SearchSpace({"x": (0, 9), "y": (0, 9)})
    assert Search("value", "min", 3, None, 10, None, None, study).study_of(space) is study


def test_a_study_of_another_metric_is_refused(until: Until) -> None:
    """Its values would be compared with those of this one. What nobody has noted a metric for is taken as it is."""
    study, space = optuna.create_study(), SearchSpace({"x": (0, 9)})
    study.add_trial(optuna.trial.create_trial(value=1.0, params={"x": 1}, distributions=space.distributions))
    executor = _Executor()
    driver = _driver({"x": (0, 9)}, executor, trials=1, study=study)
    driver.begin()
    _finish(driver, executor, until)
    assert Search("value", "min", 3, None, 10, None, None, study).study_of(space) is study
    with pytest.raises(OptionError, match="metric='loss', and the study has trials of 'value'") as caught:
        Search("loss", "min", 3, None, 10, None, None, study).study_of(space)
    assert "another name=" in caught.value.hint


def test_a_pruned_trial_that_goes_on_is_killed(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_driver, "_PATIENCE_S", 0.0)
    executor = _Executor()
    driver = _driver({"x": (0, 9)}, executor, trials=1)
    driver.begin()
    executor.heard[0]([Event(1, 0.0, "report", {"step": 0, "value": 5.0})])
    until(lambda: executor.told == [0, 0], "it is interrupted and killed")
    _finish(driver, executor, until)
    assert [trial.state for trial in driver.trials] == ["pruned"]


def test_a_sweep_grows_with_the_cluster() -> None:
    """The one that waits is limit enough: nodes may come that nobody knows of yet."""
    search = Search("value", "min", 3, None, 10, None, None, None)
    assert search.at_once(gpus=1, total=0) > 1000
    assert search.at_once(gpus=0, total=0) < 1000


def test_trials_of_before_are_kept_and_those_under_way_are_tried_again(until: Until) -> None:
    """Of the points the others are tried; nothing is sent once there are so many trials."""
    study, executor, space = optuna.create_study(), _Executor(), SearchSpace({"x": [1, 2, 3]})
    first = _driver({"x": [1, 2, 3]}, executor, study=study, at_once=1)
    first.begin()
    executor.end(0)
    until(lambda: len(executor.runs) == 2, "the second has begun")
    executor.state_of_earlier = "running"
    with pytest.raises(ConflictError, match="another sweep train goes on"):
        kept_trials(study, space, cast(Any, executor), "train")
    executor.state_of_earlier = "cancelled"
    kept = kept_trials(study, space, cast(Any, executor), "train")
    assert [(trial.parameters, trial.value, trial.state) for trial in kept] == [({"x": 1}, 0.0, "complete")]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"]
    again = _Executor()
    second = _driver({"x": [1, 2, 3]}, again, study=study, kept=kept)
    second.begin()
    assert _finish(second, again, until) == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert len(again.runs) == 2
    third = _driver({"x": [1, 2, 3]}, again, study=study, kept=kept_trials(study, space, cast(Any, again), "train"))
    assert again.asked == [{first.id, second.id}], "one question, about the trials of both"
    third.begin()
    assert len(_finish(third, again, until)) == 3
    assert len(again.runs) == 2
    executor.end(1)
    until(first.over.is_set, "the first one's thread has ended")


def test_a_driver_that_begins_again_takes_up_what_runs_and_counts_nothing_twice(until: Until) -> None:
    """Earlier reports are no news; trials that never came to their runs, or ended with it, are tried again."""
    study, executor, space = optuna.create_study(), _Executor(), SearchSpace({"x": (0, 9)})
    first = _driver({"x": (0, 9)}, executor, study=study, trials=5, at_once=3)
    first.begin()
    executor.end(0)
    until(lambda: len(executor.runs) == 4, "three are under way")
    executor.heard[1]([Event(1, 0.0, "report", {"step": 0, "value": 0.5})])
    until(lambda: study.trials[1].intermediate_values == {0: 0.5}, "it has reported")
    runs = [trial.user_attrs["jupyter_gpu_release"]["run"] for trial in study.trials]
    again = _Executor(dict(zip(runs, ("succeeded", "running", "cancelled", "lost"), strict=True)))
    own = SweepFacts(first.id, "train", "value", "min", 5, is_cell=False)
    kept = own_trials(study, space, cast(Any, again), own)
    assert [(trial.number, trial.state) for trial in kept] == [(0, "complete"), (1, "running")]
    assert [trial.state.name for trial in study.trials[:4]] == ["COMPLETE", "RUNNING", "FAIL", "FAIL"]
    second = _driver({"x": (0, 9)}, again, study=study, trials=5, at_once=3, kept=kept, sweep=first.id)
    second.begin()
    until(lambda: len(again.runs) == 3, "one is taken up, two are sent")
    again.heard[0]([Event(n, 0.0, "report", {"step": n - 1, "value": 0.5}) for n in (1, 2)])
    parameters = _finish(second, again, until)
    assert parameters[2:4] == [trial.params for trial in study.trials[2:4]]
    assert [trial.state for trial in second.trials] == ["complete"] * 5
    assert second.trials[1].steps == {0: 0.5, 1: 0.5}
    third = own_trials(study, space, cast(Any, _Executor()), own)
    assert [trial.number for trial in third] == [0, 1, 4, 5, 6]
    for number in (1, 2, 3):
        executor.end(number)


def test_a_failed_trial_of_the_same_sweep_is_kept_and_one_of_another_is_not(until: Until) -> None:
    study, executor, space = optuna.create_study(), _Executor(), SearchSpace({"x": [1, 2]})
    executor.value_of = lambda *_: 1 / 0  # type: ignore[assignment,method-assign]
    driver = _driver({"x": [1, 2]}, executor, study=study, trials=2)
    driver.begin()
    _finish(driver, executor, until)
    own = own_trials(study, space, cast(Any, executor), SweepFacts(driver.id, "t", "value", "min", 2, is_cell=False))
    assert [(trial.state, trial.error) for trial in own] == [("failed", "ZeroDivisionError: division by zero")] * 2
    other = SweepFacts(new_run_id(), "t", "value", "min", 2, is_cell=False)
    assert own_trials(study, space, cast(Any, executor), other) == []


def test_a_trial_as_text_is_the_trial() -> None:
    call = TrialCall(_train, (), {"y": 2}, lambda *_: "")
    written = call.written.statement_with({"x": "\\0 {x}", "z": 0.5})
    assert written == call.statement.replace("(", "(**{'x': '\\\\0 {x}', 'z': 0.5}, ", 1)
    searched = find_searches("a = search([1]); b = search(\n    1, 2\n)\nc = a + b", str, {})
    values = {"a": "it's", "b": 2}
    assert trial_of_cell(searched).statement_with(values) == searched.with_values(values)


def test_another_list_of_settings_is_another_space(until: Until) -> None:
    """The study has their numbers only."""
    study, executor, settings = optuna.create_study(), _Executor(), [{"x": (1, 2)}, {"x": 3}]
    driver = _driver(settings, executor, study=study, trials=2)
    driver.begin()
    _finish(driver, executor, until)
    assert len(kept_trials(study, SearchSpace(settings), cast(Any, executor), "train")) == 2
    for other in (settings[::-1], [{"x": 3}]):
        with pytest.raises(OptionError, match="of another space"):
            kept_trials(study, SearchSpace(other), cast(Any, executor), "train")


def test_a_sweep_that_the_gateway_has_ended_sends_no_other_trial(until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled by its id; trials that others cancel are no failures of the code."""
    executor = _Executor()
    driver = _driver({"x": (0, 9)}, executor, trials=9, at_once=2, failures=1)
    driver.begin()
    until(lambda: len(executor.runs) == 2, "two run")

    def refuse(*_: Any) -> None:
        raise RunCancelledError("the sweep was cancelled")

    monkeypatch.setattr(executor, "send", refuse)
    for number in range(2):
        run = f"r{number}"
        executor.runs[number].update_view(RunView(run, "", "cancelled", gone_at=1.0, outcome=Outcome("interrupted")))
    until(driver.over.is_set, "the sweep is over")
    assert isinstance(driver.failure, RunCancelledError)
