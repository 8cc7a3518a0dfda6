"""A sweep that is about to be detached: its study is made ready on the store, and the run that drives it is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ..options.run_options import RunOptions, build_options
from ..protocol.wire import encode
from ..submission.request import Submission
from .arguments import Call
from .executor import FunctionExecutor
from .kept_study import SweepFacts, kept_trials, note_sweep, open_journal, refuse_driven
from .search import Search
from .sweep_driver import Trialled
from .sweep_run import SentSweep, drive_sweep

if TYPE_CHECKING:
    from optuna import Study

    from .future import RunFuture
    from .search_space import SearchSpace, Space


@dataclass(frozen=True)
class DetachedSweep:
    """``options`` and ``submission`` are those of the trials; ``where`` is the ``space``, checked."""

    executor: FunctionExecutor
    call: Trialled
    options: RunOptions
    space: Space
    where: SearchSpace
    search: Search
    submission: Submission
    is_cell: bool = False

    def send(self) -> tuple[Study, SweepFacts, RunFuture[Any]]:
        """Send its driver; raises what the gateway refuses, and :class:`ConflictError` where the study is driven."""
        self.search.at_once(self.options.ask.gpus, 1)
        driver = self._driver()
        study = self._study(driver.request.run)
        facts = SweepFacts(
            driver.request.run, self._name, self.search.metric, self.search.mode, self._trials, self.is_cell
        )
        note_sweep(study, facts)
        return study, facts, self.executor.send(driver, self._name, lambda _: None)

    @property
    def _name(self) -> str:
        return self.options.name or self.call.name

    @property
    def _trials(self) -> int:
        return self.search.trials or self.where.size or 1

    def _driver(self) -> Submission:
        """A run like another one; it is called as its sweep is, so that to cancel the trials ends it, too."""
        search = self.search
        call = Call(drive_sweep, (encode(self._sent()), self.space, search.sampler, search.pruner))
        own = build_options({"gpus": ["0"], "detach": [""], "restartable": [""]})
        options = self.options
        own = replace(own, queue=options.queue, environment=options.environment, pip=options.pip)
        made = self.executor.prepare(call, own)
        run, imports = made.request.run, [*made.request.imports, "optuna"]
        told = {"sweep": run, "name": self._name, "call": "", "imports": imports}
        made.request = msgspec.structs.replace(made.request, **told)
        return made

    def _sent(self) -> SentSweep:
        search = self.search
        return SentSweep(
            self.submission.request,
            self.submission.paths is not None,
            self.call.written,
            self.options.name,
            self._name,
            search.metric,
            search.mode,
            self._trials,
            search.max_gpus,
            search.max_failures,
            self.is_cell,
        )

    def _study(self, run: str) -> Study:
        session = self.executor.session()
        user = session.welcome.user if session.welcome is not None else ""
        journal = open_journal(self.executor.store(session), user, self.options.name or run)
        study = self.search.study_of(self.where, journal)
        refuse_driven(study, self.executor)
        kept_trials(study, self.where, self.executor, self._name)
        return study
