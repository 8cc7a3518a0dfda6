"""From a grant to a cell that runs: the ledger, the store, Ray and the nodes, as far as possible at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import GpuReleaseError, RunCancelledError
from . import gangs
from .holding import Holding
from .leases import Lease
from .manifests import Manifests
from .nodes import NodeTable
from .ray_leases import RayLeases
from .runs import RunRecord
from .succession import Succession


class Starting:
    """Starts runs on leases that are there, or that Ray is about to make."""

    def __init__(
        self, nodes: NodeTable, manifests: Manifests, holding: Holding, succession: Succession, ray_leases: RayLeases
    ) -> None:
        self._nodes = nodes
        self._manifests = manifests
        self._holding = holding
        self._succession = succession
        self._ray_leases = ray_leases

    async def carry_out(self, record: RunRecord, lease: Lease, written: list[asyncio.Future[Any]]) -> None:
        """The node gets its order while Ray makes the lease; the cell runs when both are there.

        Raises :class:`GpuReleaseError` when it came to nothing; then no node goes on with it.
        """
        try:
            try:
                for done in [*written, *([record.committed] if record.committed else [])]:
                    await done
                if record.cancelled:
                    raise RunCancelledError(record.cancelled)
                self._succession.look_ahead(record)
                order = gangs.start_order(record, lease, self._nodes, self._manifests.folder(record.run))
                ordered = await gangs.start(self._nodes, lease, order)
            finally:
                if not lease.gpu_ids:
                    await self._ray_leases.finish(lease)
            if order.gpu_ids is None:
                self._holding.note_accelerators(record, lease)
            await gangs.accepted(self._nodes, ordered)
            await gangs.grant(self._nodes, lease, order)
        except GpuReleaseError:
            gangs.abandon(self._nodes, lease, record.run)
            await self._succession.let_go(record.after, lease)
            raise
