"""Asks Optuna for trials, has each run on the cluster, and tells what came of it."""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import GpuReleaseError, RunCancelledError, RunFailedError
from ..host.interruptible import InterruptibleEvent
from ..protocol.cell import CellPayload
from ..protocol.events import Event
from ..protocol.fetch import REPORT
from ..protocol.session import PRUNED as PRUNED_SIGNAL
from ..protocol.states import RunState
from ..protocol.wire import decode, encode
from ..serialization.exceptions import error_text
from ..submission.request import Submission
from .call_title import call_title
from .executor import FunctionExecutor
from .kept_study import note_error, note_run
from .search_space import SearchSpace
from .trial import COMPLETE, FAILED, PRUNED, RUNNING, SweepTrial, metric_of
from .written_trial import WrittenTrial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import BaseTrial

log = logging.getLogger(__name__)
#: so often it looks whether the trial that waits has got its GPU
_LOOK_S = 0.05
#: a trial that was pruned has so long to end
_PATIENCE_S = 30.0
_WAITING = (RunState.SUBMITTED.word, RunState.QUEUED.word)


@dataclass(frozen=True)
class SweepPlan:
    """Trials that are wanted: ``trials`` more, ``at_once`` of them at most, until ``max_failures`` have failed."""

    trial: WrittenTrial
    name: str
    study: Study
    space: SearchSpace
    metric: str
    trials: int
    at_once: int
    max_failures: int
    #: trials of earlier sweeps of this name, or of an earlier driver of this one; they count as some of ``trials``
    kept: Sequence[SweepTrial] = ()
    #: raises :class:`OptionError` for parameters that the function does not take
    check: Callable[[Mapping[str, Any]], None] = lambda _parameters: None

    @property
    def points(self) -> list[dict[str, Any]]:
        """Those that are tried one after the other, where it is not for the sampler to choose."""
        return self.space.fixed_points(self.trials)


class Driven(ABC):
    """A sweep that is under way, wherever it is driven; :class:`.Sweep` shows it. Nothing here blocks for long.

    ``sweep``: under which its trials are known and cancelled together. ``wanted``: trials, kept ones included.
    """

    def __init__(self, sweep: str, name: str, metric: str, wanted: int, study: Study) -> None:
        self.id = sweep
        self.name = name
        self.metric = metric
        self.wanted = wanted
        self.study = study
        self.trials: list[SweepTrial] = []
        self.over = InterruptibleEvent()
        #: why it ended early
        self.failure: BaseException | None = None

    @abstractmethod
    def cancel(self) -> None:
        """Interrupt the trials under way and begin no other; a second call kills."""

    def errors(self) -> str:
        """The errors of trials, each once, with how often it came."""
        counts = Counter(trial.error for trial in self.trials if trial.state == FAILED)
        return "; ".join(f"{error} ({count} times)" if count > 1 else error for error, count in counts.most_common())


class SweepDriver(Driven):
    """One thread does all of it; it ends with the last trial.

    One trial waits for its GPU at most: a sweep grows as GPUs come free, and the study is asked as late as can be.
    """

    def __init__(self, plan: SweepPlan, executor: FunctionExecutor, submission: Submission, sweep: str = "") -> None:
        super().__init__(sweep or submission.request.run, plan.name, plan.metric, plan.trials, plan.study)
        self.plan = plan
        self.trials += plan.kept
        self._executor = executor
        self._session = executor.session()
        #: never sent itself: each trial has a copy of its inputs
        self._template = submission
        self._payload = decode(submission.request.payload, CellPayload)
        done = [trial.asked.params for trial in plan.kept]
        self._points = [point for point in plan.points if point not in done]
        #: what the study has been told to try comes first, and is no point of ours
        self._wanted = plan.trials + (waiting_in(plan.study) if self._points else 0)
        #: trials that the space's own function has pruned
        self._skipped = 0
        self._living: dict[int, SweepTrial] = {}
        self._messages: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def begin(self) -> None:
        """Send the first trial, or take up those under way; raises what the gateway refuses."""
        try:
            for trial in self.plan.kept:
                if trial.state == RUNNING:
                    self._take_up(trial)
            while not self._living and len(self.trials) == len(self.plan.kept) and self._is_wanted:
                self._start()
        except BaseException:
            self._template.withdraw()
            raise
        threading.Thread(target=self._run, name="gpu-sweep", daemon=True).start()

    def cancel(self) -> None:
        """Interrupt the trials under way and begin no other; a second call kills."""
        cancelled = RunCancelledError("the sweep was cancelled", hint="sweep.best has the best trial so far")
        self._messages.put(partial(self._end, cancelled))

    # --------------------------------------------------------------------------------------- the thread
    def _run(self) -> None:
        try:
            while self._living or self._is_wanted:
                try:
                    self._step()
                except RunCancelledError as error:  # by its id, from a list of runs
                    self._end(error)
                except Exception as error:  # the user's own space, sampler or storage; whoever waits must hear of it
                    log.exception("sweep of %s", self.plan.name)
                    self._end(error)  # and listen on: those under way have not ended yet
        finally:
            self._template.withdraw()
            del self._template  # with what was sent
            self.over.set()

    def _step(self) -> None:
        if self.failure is None:  # else no other trial needs them, and a store that fails would keep us from listening
            self._template.keep_inputs()
        if self._is_wanted and self._has_place and self._messages.empty():
            self._start()
        else:
            self._listen()
            self._kill_the_stubborn()

    @property
    def _is_wanted(self) -> bool:
        return self.failure is None and len(self.trials) + self._skipped < self._wanted

    @property
    def _has_place(self) -> bool:
        is_waiting = any(trial.future.status in _WAITING for trial in self._living.values())
        holding = sum(trial.future.view.gone_at is None for trial in self._living.values())
        return holding < self.plan.at_once and not is_waiting

    def _listen(self) -> None:
        try:
            self._messages.get(timeout=_LOOK_S)()
        except Empty:
            return

    def _start(self) -> None:
        from optuna import TrialPruned

        if self._points:
            self.plan.study.enqueue_trial(self._points.pop(0))
        asked = self.plan.study.ask()
        try:
            parameters = self.plan.space.suggest(asked)
            self.plan.check(parameters)
            submission = self._submission_of(asked.number, parameters)
            note_run(asked, submission.request.run, parameters, self.metric, self.id)
            heard = partial(self._hear, asked.number)
            future = self._executor.send(submission, self.plan.name, heard, self._session)
        except TrialPruned:  # Optuna's own word for parameters that do not go together
            self._skipped += 1
            self._tell(asked, PRUNED)
            return
        except BaseException:
            self._tell(asked, FAILED)
            raise
        trial = SweepTrial(asked.number, parameters, asked, future)
        self.trials.append(trial)
        self._await_end(trial)

    def _take_up(self, trial: SweepTrial) -> None:
        """An earlier driver has sent it; what it reports twice counts once."""
        heard = partial(self._hear, trial.number)
        trial.future = self._executor.follow(trial.run, self.plan.name, heard)
        self._await_end(trial)

    def _await_end(self, trial: SweepTrial) -> None:
        self._living[trial.number] = trial
        trial.future.when_done(lambda _: self._messages.put(partial(self._ended, trial)))

    def _submission_of(self, number: int, parameters: Mapping[str, Any]) -> Submission:
        made = self._template.again()
        statement = self.plan.trial.statement_with(parameters)
        name = f"{self.plan.name} {number}"
        # the second and third are those of Weights & Biases; a user's own stay
        named = {"GPU_TRIAL_NAME": name, "WANDB_NAME": name, "WANDB_RUN_GROUP": self.plan.name}
        told = {"source": statement, "metric": self.plan.metric, "env": named | self._payload.env}
        payload = encode(msgspec.structs.replace(self._payload, **told))
        call = call_title(name, (), parameters)
        made.request = msgspec.structs.replace(made.request, payload=payload, name=name, call=call, sweep=self.id)
        return made

    def _hear(self, number: int, events: Sequence[Event]) -> None:
        """On the session's thread."""
        for event in events:
            if event.kind == REPORT and not event.data.get("rank"):  # of a gang the first: others see other data
                self._messages.put(partial(self._reported, number, event.data["step"], event.data["value"]))

    def _reported(self, number: int, step: int, value: float) -> None:
        trial = self._living.get(number)
        if trial is None or trial.state == PRUNED or step in trial.steps:
            return
        trial.steps[step] = value
        trial.asked.report(value, step)
        if trial.asked.should_prune():
            trial.state = PRUNED
            trial.killed_at = time.monotonic() + _PATIENCE_S
            trial.future.end(PRUNED_SIGNAL)

    def _kill_the_stubborn(self) -> None:
        """A pruned trial that went on after the interrupt would hold its place for good."""
        for trial in self._living.values():
            if time.monotonic() > trial.killed_at:
                trial.killed_at = math.inf
                trial.future.cancel()

    def _ended(self, trial: SweepTrial) -> None:
        del self._living[trial.number]
        if trial.state != PRUNED:
            try:
                trial.value = self._value_of(trial)
                trial.state = COMPLETE
            except Exception as error:  # noqa: BLE001 - the user's own: the trial's, not the sweep's
                trial.state = FAILED
                trial.error = f"{type(error).__name__}: {error_text(error)}".splitlines()[0]
                note_error(trial.asked, trial.error)
        self._tell(trial.asked, trial.state, trial.value)
        failed = sum(each.state == FAILED and not each.future.cancelled() for each in self.trials)
        if failed >= self.plan.max_failures and self.failure is None:
            self._end(RunFailedError(f"the sweep ended after {failed} failed trials: {self.errors()}", hint=_LOOK))

    def _value_of(self, trial: SweepTrial) -> float:
        """Not kept: of a thousand trials the results of one are looked at."""
        failure = trial.future.exception()
        if failure is not None:
            raise failure
        outcome = trial.future.view.outcome
        if outcome is not None and self.plan.metric in outcome.metric:
            return outcome.metric[self.plan.metric]
        returned = self._executor.value_of(trial.future.view, self.plan.trial.name)  # says what is wrong
        return metric_of(returned, self.plan.metric, self.plan.trial.title)

    def _tell(self, asked: BaseTrial, state: str, value: float | None = None) -> None:
        from optuna.trial import TrialState

        states = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED, FAILED: TrialState.FAIL}
        self.plan.study.tell(asked.number, value, state=states[state])

    def _end(self, failure: BaseException) -> None:
        self.failure = self.failure or failure
        for trial in self._living.values():
            trial.future.cancel()


def waiting_in(study: Study) -> int:
    """Number of trials that somebody has put into the study and nobody has asked for."""
    from optuna.trial import TrialState

    return len(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))


_LOOK = "sweep.trials has each trial's error and run; `jupyter gpu runs show RUN` has its traceback"


def nothing_found(name: str, errors: str) -> GpuReleaseError:
    """The error of a sweep without a trial that went well."""
    return RunFailedError(f"no trial of {name} was completed: {errors or 'all were pruned'}", hint=_LOOK)
