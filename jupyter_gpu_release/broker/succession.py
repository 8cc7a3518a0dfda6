"""Who gets a lease as it is when its run has ended, and with it the process that stayed after a call of a function."""

from __future__ import annotations

import contextlib

from ..errors import ClusterError
from .leases import Lease, LeaseTable
from .nodes import NodeTable
from .queue import RunQueue
from .runs import PHASES, RunRecord, RunTable


class Succession:
    """Asks the queue; a process that nobody takes is gone before its GPUs are anybody else's."""

    def __init__(self, queue: RunQueue, runs: RunTable, leases: LeaseTable, nodes: NodeTable) -> None:
        self._queue = queue
        self._runs = runs
        self._leases = leases
        self._nodes = nodes
        queue.on_wait = self._on_wait

    def look_ahead(self, record: RunRecord) -> None:
        """A call is about to begin: its process is to stay if another one waits already."""
        record.is_followed = self._queue.has_more_of(record)

    def _on_wait(self, waiting: RunRecord) -> None:
        """Calls that were granted while nobody waited hear of the first one that does."""
        for lease in self._leases.all() if waiting.request.series else ():
            record = self._runs.get(lease.run)
            if record is None or record.is_followed or not waiting.is_of_series(record):
                continue
            record.is_followed = True
            if record.phase < PHASES["ended"]:
                self._nodes.ask_to_stay(lease.slots[0].node, record.run)

    async def next_on(self, lease: Lease, ended: RunRecord) -> RunRecord | None:
        """The run that wants exactly these slots, out of the queue; its ``after`` says whose process it takes."""
        if ended.stays:
            caller = self._queue.successor(lease, of_series=ended)
            if caller is not None:
                caller.after = ended.run
                return caller
            await self.let_go(ended.run, lease)
        return self._queue.successor(lease)

    async def let_go(self, run: str, lease: Lease) -> None:
        """Nothing follows ``run`` in its process: return when that is gone (with its agent at the latest)."""
        if run:
            with contextlib.suppress(ClusterError):
                await self._nodes.call(lease.slots[0].node, "let_go", run)
