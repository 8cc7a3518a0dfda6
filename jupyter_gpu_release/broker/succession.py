"""Who gets a lease as it is when its run has ended, and with it the process that stayed after a call of a function."""

from __future__ import annotations

import contextlib

from ..core.node_messages import RunFollows
from ..errors import ClusterError
from .leases import Lease, LeaseTable
from .nodes import NodeTable
from .promises import Promises
from .queue import RunQueue
from .runs import PHASES, RunRecord, RunTable


class Succession:
    """Asks the queue; a process that nobody takes is gone before its GPUs are anybody else's."""

    def __init__(
        self, queue: RunQueue, runs: RunTable, leases: LeaseTable, nodes: NodeTable, promises: Promises
    ) -> None:
        self._queue = queue
        self._promises = promises
        self._runs = runs
        self._leases = leases
        self._nodes = nodes
        queue.on_wait = self._on_wait

    def look_ahead(self, record: RunRecord) -> None:
        """A call is about to begin: its process is to stay if another one waits already."""
        record.is_followed = self._queue.has_more_of(record)

    def look_again(self, record: RunRecord) -> None:
        """A call has begun with what was known a moment ago."""
        if not record.is_followed and self._queue.has_more_of(record):
            self._ask_to_stay(record)

    def _on_wait(self, waiting: RunRecord) -> None:
        """Calls that were granted while nobody waited hear of the first one that does."""
        series = waiting.series
        for lease in self._leases.all() if series else ():
            record = self._runs.get(lease.run)
            if record is not None and not record.is_followed and record.series == series:
                self._ask_to_stay(record)

    def _ask_to_stay(self, record: RunRecord) -> None:
        record.is_followed = True
        if record.lease is not None and record.phase < PHASES["ended"]:
            self._nodes.ask_to_stay(record.lease.slots[0].node, record.run)

    async def next_on(self, lease: Lease, ended: RunRecord) -> RunRecord | None:
        """The run that wants exactly these slots, out of the queue; its ``after`` says whose process it takes."""
        stays = ended.run if ended.stays else ""
        while (found := self._queue.successor(lease)) is not None:
            if self._queue.is_promised(found.run):
                if not await self._promises.is_given_back(found) and found.run in self._queue:
                    break  # its node does not answer
            elif stays and found.series != ended.series:
                await self.let_go(stays, lease)
                stays = ""
            else:
                found.after = stays
                self._queue.remove(found)
                return found
        await self.let_go(stays, lease)
        return None

    def taken_over(self, message: RunFollows) -> Lease | None:
        """The lease of the run ``after``, for the one that its node has begun there; None when it holds none."""
        before = self._runs.get(message.after)
        if before is None or before.lease is None:
            return None
        lease, before.lease, before.handed_at = before.lease.handed_to(message.run), None, message.at_s
        lease.gpu_ids = lease.gpu_ids or (tuple(message.gpu_ids),)  # Ray's word of them may still be on its way
        return self._leases.add(lease)

    async def let_go(self, run: str, lease: Lease) -> None:
        """Nothing follows ``run`` in its process: return when that is gone (with its agent at the latest)."""
        if run:
            with contextlib.suppress(ClusterError):
                await self._nodes.call(lease.slots[0].node, "let_go", run)
