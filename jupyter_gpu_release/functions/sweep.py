"""``Sweep``: what :func:`.sweep` returns, and its beginning."""

from __future__ import annotations

import importlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackageError, NoSuchRunError, StoreError
from ..options.run_options import RunOptions
from ..store.studies import study_path
from ..submission.request import Submission
from .arguments import TrialCall, options_as_text
from .detached_sweep import DetachedSweep
from .executor import FunctionExecutor
from .kept_study import STUDY, SweepFacts, earlier_of, open_journal, open_study, sweep_of
from .search import Search
from .sweep_driver import Driven, SweepDriver, SweepPlan, nothing_found
from .sweep_plots import draw_plots
from .trial import COMPLETE, RUNNING, SweepTrial
from .watched_sweep import WatchedSweep
from .written_trial import WrittenTrial

if TYPE_CHECKING:
    from optuna import Study

    from ..client.session import GatewaySession
    from .future import RunFuture
    from .search_space import SearchSpace, Space


class Sweep:
    """The trials of one search. They end with this process, unless a run on the cluster drives them (``detach``)."""

    def __init__(self, driver: Driven, *, is_max: bool) -> None:
        self._driver = driver
        self._is_max = is_max

    @property
    def id(self) -> str:
        """The id under which lists show it; `jupyter gpu cancel` and `%gpu_cancel` end it."""
        return self._driver.id

    @property
    def study(self) -> Study:
        """Optuna's study: for its other plots, and to go on with it in another sweep (``study=``)."""
        return self._driver.study

    @property
    def best(self) -> SweepTrial | None:
        """The best of this sweep's trials so far."""
        return next(iter(self.ranked), None)

    @property
    def ranked(self) -> list[SweepTrial]:
        """The trials that are complete, the best first."""
        return sorted((trial for trial in self.all_trials if trial.state == COMPLETE), key=self._rank)

    def _rank(self, trial: SweepTrial) -> float:
        assert trial.value is not None
        return -trial.value if self._is_max else trial.value

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self._driver.metric

    @property
    def failure(self) -> BaseException | None:
        """Why it ended early, or without a result; None: it did not, or it is not over."""
        if not self.done():
            return None
        return self._driver.failure or (None if self.ranked else nothing_found(self._driver.name, self.errors))

    @property
    def all_trials(self) -> list[SweepTrial]:
        """The trials in the order in which they began."""
        return list(self._driver.trials)

    @property
    def trials(self) -> Any:
        """The trials as a DataFrame: parameters, value, steps, seconds, GPU-seconds, run and error of each."""
        pandas = _imported("pandas", "a table of trials is a DataFrame")
        return pandas.DataFrame([trial.row(self.metric) for trial in self.all_trials])

    def plot(self) -> list[Any]:
        """Draw the study's history with the best so far, and its parallel coordinates; returns matplotlib's axes.

        In a notebook they appear below the cell. In a script `matplotlib.pyplot.show()` shows them.

        Raises
        ------
        MissingPackageError
            matplotlib is not installed here.
        """
        _imported("matplotlib", "plots are drawn with matplotlib", "%pip install matplotlib")
        return draw_plots(self.study, self.metric)

    def load(self, trial: int | None = None) -> Any:
        """The value that a trial's function returned (default: the best one's); large arrays are mapped, not read.

        Raises
        ------
        NoSuchRunError
            The sweep has no such trial (yet).
        Exception
            What the trial raised.
        """
        found = self.best if trial is None else next((one for one in self._driver.trials if one.number == trial), None)
        if found is None:
            raise NoSuchRunError(
                f"{self._driver.name} has no trial {'' if trial is None else trial}".rstrip(),
                hint="sweep.trials lists them",
            )
        return found.result()

    def done(self) -> bool:
        """Tell if all trials are over."""
        return self._driver.over.is_set()

    def result(self, timeout: float | None = None) -> SweepTrial:
        """Wait for all trials and return the best one: ``number``, ``parameters``, ``value``, ``run``, ``result()``.

        ■ (Ctrl-C) while this waits cancels all of it.

        Raises
        ------
        TimeoutError
            It is not over within ``timeout``; it goes on.
        RunFailedError
            No trial was completed, or too many failed.
        RunCancelledError
            It was cancelled; ``best`` has the best trial so far.
        """
        self._wait(timeout)
        if self.failure is not None:
            raise self.failure
        return self.ranked[0]

    def wait(self, timeout_s: float) -> bool:
        """Tell if all trials are over within ``timeout_s``; raises nothing, cancels nothing."""
        return self._driver.over.wait(timeout_s)

    def _wait(self, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not self._driver.over.wait(0.5 if deadline is None else max(0.0, deadline - time.monotonic())):
                if deadline is not None:
                    raise TimeoutError(f"{self!r} after {timeout_s:g} s")
        except KeyboardInterrupt:
            self.cancel()
            raise

    def cancel(self) -> bool:
        """Interrupt the trials under way and begin no other; a second call kills. False: it is over already."""
        if self.done():
            return False
        self._driver.cancel()
        return True

    @property
    def counts(self) -> list[str]:
        """Number of trials in each state, and the best value so far, in words."""
        counts = Counter(trial.word for trial in self.all_trials)
        told = [f"{self._driver.wanted} trials", *(f"{count} {state}" for state, count in sorted(counts.items()))]
        best = self.best
        return told if best is None else [*told, f"best {self.metric}={best.value:.6g} (trial {best.number})"]

    @property
    def left(self) -> tuple[int, float] | None:
        """Number of trials that have not ended, and the GPU-seconds that they take if they are like the others.

        None: no trial has ended yet that held a GPU, or no other will begin.
        """
        ended = [trial for trial in self.all_trials if trial.state != RUNNING]
        spent = [trial.gpu_seconds for trial in ended if trial.gpu_seconds]
        count = self._driver.wanted - len(ended)
        return (count, count * fmean(spent)) if spent and count > 0 and self._driver.failure is None else None

    @property
    def errors(self) -> str:
        """The errors of failed trials, each once, with how often it came."""
        return self._driver.errors()

    def __repr__(self) -> str:
        return f"<sweep of {self._driver.name}: {', '.join(filter(None, [*self.counts, self.errors]))}>"


def start_sweep(
    executor: FunctionExecutor, call: TrialCall, own: Mapping[str, Any], space: Space, search: Search
) -> Sweep:
    """Send the first trial; raises as :meth:`.FunctionExecutor.start` does."""
    where = checked_space(space, search)
    for example in where.examples():
        call.check_parameters(example)
    is_detached, options = _options(executor, own)
    if is_detached:
        submission = executor.prepare(call, options)
        return detach_sweep(DetachedSweep(executor, call.written, options, space, where, search, submission))
    study, kept = study_of(executor, options.name, where, search)
    submission, check = executor.prepare(call, options), call.check_parameters
    return begin_sweep(executor, call.written, options, where, study, kept, search, submission, check)


def checked_space(space: Space, search: Search) -> SearchSpace:
    """The space; raises :class:`OptionError` for what cannot be searched, and where Optuna is missing."""
    _imported("optuna", "a sweep searches with Optuna")
    from .search_space import SearchSpace

    where = SearchSpace(space)
    search.check(where)
    return where


def study_of(
    executor: FunctionExecutor, name: str, where: SearchSpace, search: Search
) -> tuple[Study, list[SweepTrial]]:
    """The study, and the trials that it has; one with a name lies on the store, if that can be written from here.

    A study of the user's own stays where it is, but for one in memory, which has a copy there.
    """
    if not name or (search.study is not None and not search.is_in_memory):
        return search.study_of(where), []
    session = executor.session()
    user = session.welcome.user if session.welcome is not None else ""
    try:
        journal = open_journal(executor.store(session), user, name)
    except StoreError as error:
        warnings.warn(f"sweep {name} cannot be continued later: {error.message}", UserWarning, stacklevel=4)
        return search.study_of(where), []
    return search.study_on_store(where, journal, executor, name)


def begin_sweep(
    executor: FunctionExecutor,
    trial: WrittenTrial,
    options: RunOptions,
    where: SearchSpace,
    study: Study,
    kept: Sequence[SweepTrial],
    search: Search,
    submission: Submission,
    check: Callable[[Mapping[str, Any]], None] = lambda _parameters: None,
) -> Sweep:
    """Send the first trial of what was prepared; raises what the gateway refuses, and as ``check`` does."""
    welcome = executor.session().welcome
    plan = SweepPlan(
        trial,
        options.name or trial.name,
        study,
        where,
        search.metric,
        search.trials or where.size or 1,
        search.at_once(options.ask.gpus, welcome.gpus_most if welcome is not None else 1),
        search.max_failures,
        kept,
        check,
    )
    driver = SweepDriver(plan, executor, submission)
    driver.begin()
    return Sweep(driver, is_max=search.mode == "max")


def detach_sweep(detached: DetachedSweep) -> Sweep:
    """Have a run on the cluster drive what was prepared; raises what the gateway refuses."""
    try:
        study, facts, run = detached.send()
    except BaseException:
        detached.submission.withdraw()
        raise
    return watch_sweep(detached.executor, study, facts, run)


def find_sweep(executor: FunctionExecutor, session: GatewaySession, name: str) -> tuple[Study, SweepFacts] | None:
    """The study of that name (of a sweep without one: the run that drives it), and its sweep on the cluster.

    None: there is none, or nobody else can open it. Raises :class:`StoreError`.
    """
    study = _study_named(executor, session, name)
    facts = None if study is None else sweep_of(study)
    if study is None or facts is None:
        return None
    if facts.storage is None:
        return study, facts
    return (open_study(facts), facts) if facts.storage else None


def earlier_trials(executor: FunctionExecutor, session: GatewaySession, name: str) -> list[SweepTrial]:
    """The trials that a sweep of that name would keep. Raises :class:`StoreError`; changes nothing."""
    study = _study_named(executor, session, name)
    return [] if study is None else earlier_of(study, executor, name)


def _study_named(executor: FunctionExecutor, session: GatewaySession, name: str) -> Study | None:
    user, store = session.welcome.user if session.welcome is not None else "", executor.store(session)
    if not study_path(store, user, name).exists():
        return None
    optuna = _imported("optuna", "a sweep searches with Optuna")
    study: Study = optuna.load_study(study_name=STUDY, storage=open_journal(store, user, name))
    return study


def watch_sweep(executor: FunctionExecutor, study: Study, facts: SweepFacts, run: RunFuture[Any]) -> Sweep:
    """The sweep that ``run`` drives on the cluster."""
    return Sweep(WatchedSweep(facts, study, executor, run), is_max=facts.mode == "max")


def _options(executor: FunctionExecutor, own: Mapping[str, Any]) -> tuple[bool, RunOptions]:
    """The trials' options, and before them whether the sweep outlives this process.

    Trials give way to everybody, unless the options say otherwise.
    """
    usual = {"priority": "low"}
    options = executor.parse_options(options_as_text({**usual, **own}))
    if not options.is_gang and "restartable" not in own:
        options = executor.parse_options(options_as_text({**usual, "restartable": True, **own}))
    return options.detach, replace(options, detach=False)


def _imported(package: str, why: str, install: str = "%pip install 'jupyter-gpu-release[sweep]'") -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise MissingPackageError(f"{why}, and {package} is not installed here", hint=install) from None
