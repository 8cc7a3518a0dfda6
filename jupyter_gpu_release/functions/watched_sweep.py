"""``WatchedSweep``: a sweep that a run on the cluster drives, as it is seen from here: in its study, on the store."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from ..client.rest import GatewayClient
from ..errors import NoSuchRunError, StoreError
from .kept_study import SweepFacts, run_of, trial_as_kept
from .sweep_driver import Driven
from .trial import RUNNING, SweepTrial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from .executor import FunctionExecutor
    from .future import RunFuture

#: between two looks at the study
_LOOK_S = 0.5


class WatchedSweep(Driven):
    """One thread looks at the study until the run is over. To stop watching changes nothing."""

    def __init__(self, facts: SweepFacts, study: Study, executor: FunctionExecutor, run: RunFuture[Any]) -> None:
        super().__init__(facts.sweep, facts.name, facts.metric, facts.trials, study)
        self.facts = facts
        self._executor = executor
        self._run = run
        self._look_at_study()
        threading.Thread(target=self._watch, name="gpu-sweep-watch", daemon=True).start()

    def cancel(self) -> None:
        """Interrupt driver and trials; a second call kills."""
        with contextlib.suppress(NoSuchRunError), GatewayClient.for_target(self._executor.session().target) as gateway:
            gateway.cancel(self.id)

    # --------------------------------------------------------------------------------------- the thread
    def _watch(self) -> None:
        ended = threading.Event()
        self._run.when_done(lambda _: ended.set())
        try:
            while not ended.wait(_LOOK_S):
                with contextlib.suppress(Exception):  # store, gateway or a database of any kind is away for a while
                    self._look_at_study()
            self._look_at_study()
            self.failure = self._run.exception()
        except Exception as error:  # noqa: BLE001 - of any database
            self.failure = StoreError(
                f"the study of sweep {self.id} cannot be read: {error}", hint=f"later: %gpu_attach {self.id}"
            )
        finally:
            self.over.set()

    def _look_at_study(self) -> None:
        known = {trial.number: trial for trial in self.trials}
        found = [self._newest(frozen, known.get(frozen.number)) for frozen in self.study.get_trials(deepcopy=False)]
        self.trials = [trial for trial in found if trial is not None]

    def _newest(self, frozen: FrozenTrial, known: SweepTrial | None) -> SweepTrial | None:
        if known is not None and known.state != RUNNING:
            return known
        run = run_of(frozen, self.facts)
        if not run:
            return None
        future = self._future(run, is_over=frozen.state.is_finished()) if known is None else known.future
        return None if future is None else trial_as_kept(frozen, future)

    def _future(self, run: str, *, is_over: bool) -> RunFuture[Any] | None:
        try:
            return self._executor.follow(run, self.name)
        except NoSuchRunError:  # it is about to be sent, or is removed from the ledger
            return self._executor.earlier(run, self.name) if is_over else None
