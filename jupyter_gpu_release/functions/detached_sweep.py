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
from .kept_study import SweepFacts, note_sweep, open_journal, storage_of
from .search import Search
from .sweep_run import SentSweep, drive_sweep
from .written_trial import WrittenTrial

if TYPE_CHECKING:
    from optuna import Study

    from .future import RunFuture
    from .search_space import SearchSpace, Space


@dataclass(frozen=True)
class DetachedSweep:
    """``options`` and ``submission`` are those of the trials; ``where`` is the ``space``, checked."""

    executor: FunctionExecutor
    trial: WrittenTrial
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
        study = noted = self._study_on_store(driver.request.run)
        facts = SweepFacts(
            driver.request.run, self._name, self.search.metric, self.search.mode, self._trials, self.is_cell
        )
        if (own := self._search.study) is not None:
            study, facts = own, msgspec.structs.replace(facts, storage=storage_of(own), study=own.study_name)
        note_sweep(noted, facts)
        return study, facts, self.executor.send(driver, self._name, lambda _: None)

    @property
    def _search(self) -> Search:
        """As the driver gets it: a study in memory has been copied to the store."""
        return self.search.on_store() if self.search.is_in_memory else self.search

    @property
    def _name(self) -> str:
        return self.options.name or self.trial.name

    @property
    def _trials(self) -> int:
        return self.search.trials or self.where.size or 1

    def _driver(self) -> Submission:
        """A run like another one; it is called as its sweep is, so that to cancel the trials ends it, too."""
        search = self._search
        call = Call(drive_sweep, (encode(self._sent()), self.space, search.sampler, search.pruner, search.study))
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
            self.trial,
            self.options.name,
            self._name,
            search.metric,
            search.mode,
            self._trials,
            search.max_gpus,
            search.max_failures,
            self.is_cell,
        )

    def _study_on_store(self, run: str) -> Study:
        """The sweep's study, or where others find that of the user's own."""
        session = self.executor.session()
        user = session.welcome.user if session.welcome is not None else ""
        journal = open_journal(self.executor.store(session), user, self.options.name or run)
        return self.search.study_on_store(self.where, journal, self.executor, self._name)[0]
