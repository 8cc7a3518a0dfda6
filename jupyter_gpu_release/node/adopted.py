"""A run whose cell is over, taken over from an earlier agent (or cluster): only its results are on their way still."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ..core.messages import Event, Outcome, PersistWait
from ..core.node_messages import NodeMessage, NodeRun, RunPhase, RunWaits
from ..storage.events import read_events
from ..storage.layout import RunPaths
from .keeping import Keeping
from .settlement import settled_outcome


class AdoptedRun:
    """Like a :class:`.RunOnNode` that has been released."""

    def __init__(
        self, run: str, folder: str, outcome: Outcome, keeping: Keeping, tell: Callable[[NodeMessage], None]
    ) -> None:
        self.run = run
        self.phase = "released"
        self.outcome = outcome
        self.waits_for: PersistWait | None = None
        self._folder = folder
        self._keeping = keeping
        self._tell = tell
        self._at_s = time.time()

    def view(self) -> NodeRun:
        """This run for the gateway. Its last event's number is in the log."""
        return NodeRun(self.run, self.phase, 0, self._at_s, self.outcome, self.waits_for)

    def events(self, after: int) -> list[Event]:
        """Recorded events above ``after``."""
        return list(read_events(RunPaths(Path(self._folder)).events, after))

    def signal(self, name: str, status: str) -> None:
        """Nothing runs any more: results are given up by :meth:`.Keeping.give_up` only."""

    async def carry_out(self) -> None:
        """Report it as released, then its end."""
        self._phase("released")
        values = self.outcome.values
        if values is not None and not values.file:
            settlement = await self._keeping.keep_small(self.run, self._folder, self.outcome, self._on_wait)
        else:
            self._keeping.listen(self.run, self._on_wait)
            settlement = await self._keeping.settled(self.run)
        self.outcome = settled_outcome(self.run, self.outcome, settlement)
        self._phase("final")

    def _on_wait(self, wait: PersistWait) -> None:
        self.waits_for = wait
        self._tell(RunWaits(self.run, wait))

    def _phase(self, phase: str) -> None:
        self.phase, self._at_s = phase, time.time()
        self._tell(RunPhase(self.run, phase, self._at_s, self.outcome))
