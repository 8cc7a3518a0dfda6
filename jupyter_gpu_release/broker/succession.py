"""Who gets a lease as it is when its run has ended, and with it the process that stayed after a call of a function."""

from __future__ import annotations

import contextlib

from ..errors import ClusterError
from .leases import Lease
from .nodes import NodeTable
from .queue import RunQueue
from .runs import RunRecord


class Succession:
    """Asks the queue; a process that nobody takes is gone before its GPUs are anybody else's."""

    def __init__(self, queue: RunQueue, nodes: NodeTable) -> None:
        self._queue = queue
        self._nodes = nodes

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
