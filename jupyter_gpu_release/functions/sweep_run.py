"""The run on the cluster that drives a sweep: it asks and tells, as a kernel does otherwise, and outlives that.

It is restartable: what it knows is in the study, on the store. An attempt takes up the trials that the one before has
left running; their session is the same, so they end only if no attempt comes back in time, or the run is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .. import streams
from ..cell_api import context
from ..client.discovery import Target
from ..client.session import GatewaySession, connect
from ..errors import GpuReleaseError, NoSuchRunError, RunFailedError
from ..protocol.node import GatewayAccess
from ..protocol.runs import RunRequest, RunView
from ..protocol.session import driver_session
from ..protocol.wire import decode
from ..store.layout import RunPaths
from ..submission.request import Submission
from .future import RunFuture
from .kept_study import SweepFacts, open_journal, own_trials
from .script import ScriptExecutor
from .search import Search
from .search_space import SearchSpace, Space
from .sweep_driver import SweepDriver, SweepPlan, nothing_found
from .trial import COMPLETE
from .written_trial import WrittenTrial

if TYPE_CHECKING:
    from optuna import Study


class SentSweep(msgspec.Struct, frozen=True):
    """A sweep as its driver gets it, but for what is Python's: space, sampler and pruner.

    ``template``: the request of which each trial is a copy. ``journal``: the study's; empty: it is called by the run.
    """

    template: RunRequest
    has_inputs: bool
    trial: WrittenTrial
    journal: str
    name: str
    metric: str
    mode: str
    trials: int
    max_gpus: int | None
    max_failures: int
    is_cell: bool


@streams.named
def drive_sweep(sent: bytes, space: Space, sampler: Any, pruner: Any, study: Any) -> dict[str, Any]:
    """Drive a sweep to its end; returns what is best, and raises why there is nothing.

    ``study``: the user's own, in a storage of its own.
    """
    around = context.current_context()
    access = around.gateway() if around is not None else None
    if around is None or access is None:
        raise RuntimeError("the driver of a sweep runs on the cluster only")
    executor = DriverExecutor(access, around.store(), is_cell=(asked := decode(sent, SentSweep)).is_cell)
    try:
        search = Search(
            asked.metric, asked.mode, asked.trials, asked.max_gpus, asked.max_failures, sampler, pruner, study
        )
        return _driven_to_its_end(_begin(asked, space, search, executor, access.sweep), search)
    finally:
        executor.close()


def _begin(asked: SentSweep, space: Space, search: Search, executor: DriverExecutor, sweep: str) -> SweepDriver:
    where, session = SearchSpace(space), executor.session()
    user, gpus_most = (session.welcome.user, session.welcome.gpus_most) if session.welcome is not None else ("", 1)
    store = executor.store(session)
    facts = SweepFacts(sweep, asked.name, asked.metric, asked.mode, asked.trials, asked.is_cell)
    if search.study is None:
        study = search.study_of(where, open_journal(store, user, asked.journal or sweep))
    else:
        study, facts = _own_study(search, where), msgspec.structs.replace(facts, storage="")
    kept = own_trials(study, where, executor, facts)
    at_once = search.at_once(asked.template.ask.gpus, gpus_most)
    plan = SweepPlan(
        asked.trial, asked.name, study, where, asked.metric, asked.trials, at_once, asked.max_failures, kept
    )
    paths = RunPaths(store / "runs" / asked.template.run) if asked.has_inputs else None
    driver = SweepDriver(plan, executor, Submission(asked.template, cast(Any, None), paths), sweep)
    driver.begin()
    return driver


def _own_study(search: Search, where: SearchSpace) -> Study:
    try:
        return search.study_of(where)
    except GpuReleaseError:
        raise
    except Exception as error:  # of any database
        raise RunFailedError(
            f"the study cannot be opened on the cluster: {type(error).__name__}: {error}",
            hint="nodes must reach its storage, too: a database, or a journal's file on the store",
        ) from error


def _driven_to_its_end(driver: SweepDriver, search: Search) -> dict[str, Any]:
    try:
        driver.over.wait()
    except KeyboardInterrupt:
        driver.cancel()
        driver.over.wait()
        raise
    done = [trial for trial in driver.trials if trial.state == COMPLETE]
    if driver.failure is not None or not done:
        raise driver.failure or nothing_found(driver.plan.name, driver.errors())
    best = (max if search.mode == "max" else min)(done, key=lambda trial: cast(float, trial.value))
    return {"trial": best.number, "value": best.value, "parameters": dict(best.parameters)}


class DriverExecutor(ScriptExecutor):
    """Sends trials from the run that drives them, by the token that its order brought."""

    def __init__(self, access: GatewayAccess, store: str, *, is_cell: bool) -> None:
        super().__init__({}, "sweep")
        target = Target(access.url, access.token, True, store, own_certificate=access.certificate)
        self._session = GatewaySession(target, driver_session(access.sweep))
        self._is_cell = is_cell

    def session(self) -> GatewaySession:
        """The same for good: what a lost connection leaves is sent when it is back."""
        assert self._session is not None
        if self._session.welcome is None:
            connect(self._session)
        return self._session

    def earlier(self, run: str, name: str) -> RunFuture[Any]:
        """As that of others; the token is good for a session only."""
        try:
            return self.follow(run, name)
        except NoSuchRunError:
            return RunFuture(self, RunView(run=run, user="", state="lost"), name, lambda _: None)

    def earlier_trials(self, runs: Mapping[str, str], name: str) -> dict[str, RunFuture[Any]]:
        """As that of others."""
        return {run: self.earlier(run, name) for run in runs}

    def value_of(self, view: RunView, name: str) -> Any:
        """The value of a function, or the names of a cell."""
        if not self._is_cell:
            return super().value_of(view, name)
        loaded = self.load_values(view, name)
        return {**loaded.modules, **loaded.values}
