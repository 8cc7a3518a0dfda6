"""``Sweep``: what :func:`.sweep` returns, and its beginning."""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MissingPackageError, NoSuchRunError, OptionError
from ..options.run_options import RunOptions
from .arguments import TrialCall, options_as_text
from .executor import FunctionExecutor
from .search import Search
from .sweep_driver import SweepDriver, SweepPlan, nothing_found
from .trial import COMPLETE, FAILED, SweepTrial

if TYPE_CHECKING:
    from optuna import Study

    from .search_space import Space


class Sweep:
    """The trials of one search, driven from this process: they end with it."""

    def __init__(self, driver: SweepDriver, *, is_max: bool) -> None:
        self._driver = driver
        self._is_max = is_max

    @property
    def study(self) -> Study:
        """Optuna's study: for its plots, and to go on with it in another sweep (``study=``)."""
        return self._driver.plan.study

    @property
    def best(self) -> SweepTrial | None:
        """The best of this sweep's trials so far."""
        complete = [trial for trial in self._driver.trials if trial.state == COMPLETE]
        return min(complete, key=self._rank, default=None)

    def _rank(self, trial: SweepTrial) -> float:
        assert trial.value is not None
        return -trial.value if self._is_max else trial.value

    @property
    def trials(self) -> Any:
        """The trials as a DataFrame: parameters, value, steps, seconds, GPU-seconds, run and error of each."""
        pandas = _imported("pandas", "a table of trials is a DataFrame")
        return pandas.DataFrame([trial.row(self._driver.plan.metric) for trial in self._driver.trials])

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
                f"{self._driver.plan.name} has no trial {'' if trial is None else trial}".rstrip(),
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
        failure, best = self._driver.failure, self.best
        if failure is not None:
            raise failure
        if best is None:
            raise nothing_found(self._driver)
        return best

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

    def __repr__(self) -> str:
        plan, counts = self._driver.plan, Counter(trial.state for trial in self._driver.trials)
        told = [f"{count} {state}" for state, count in sorted(counts.items())]
        best = self.best
        if best is not None:
            told.append(f"best {plan.metric}={best.value:.6g} (trial {best.number})")
        if counts[FAILED]:
            told.append(self._driver.errors())
        return f"<sweep of {plan.name}: {plan.trials} trials{''.join(f', {text}' for text in told)}>"


def start_sweep(
    executor: FunctionExecutor, call: TrialCall, own: Mapping[str, Any], space: Space, search: Search
) -> Sweep:
    """Send the first trial; raises as :meth:`.FunctionExecutor.start` does."""
    _imported("optuna", "a sweep searches with Optuna")
    from .search_space import SearchSpace

    where = SearchSpace(space)
    search.check(where)
    for example in where.examples():
        call.check_parameters(example)
    options = _options(executor, own)
    study = search.study_of(where)
    submission = executor.prepare(call, options)
    welcome = executor.session().welcome
    plan = SweepPlan(
        call,
        options.name or call.name,
        study,
        where,
        search.metric,
        search.trials or where.size or 1,
        search.at_once(options.ask.gpus, welcome.gpus_total if welcome is not None else 1),
        search.max_failures,
    )
    driver = SweepDriver(plan, executor, submission)
    driver.begin()
    return Sweep(driver, is_max=search.mode == "max")


def _options(executor: FunctionExecutor, own: Mapping[str, Any]) -> RunOptions:
    """The trials' options: they give way to everybody, unless they say otherwise."""
    options = executor.parse_options(options_as_text({"priority": "low", **own}))
    if options.detach:
        raise OptionError("sweep() asks for its trials from here: detach would leave nobody to do that", hint=_STUDY)
    if options.is_gang or "restartable" in own:
        return options
    return executor.parse_options(options_as_text({"priority": "low", "restartable": True, **own}))


_STUDY = "give a study= with a storage: another sweep goes on with it"


def _imported(package: str, why: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"{why}, and {package} is not installed here", hint="%pip install 'jupyter-gpu-release[sweep]'"
        ) from None
