"""From a grant to a cell that runs: the ledger, the store, Ray and the nodes, as far as possible at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import GpuReleaseError, RunCancelledError
from ..storage.store_threads import ANSWER_S
from . import gangs
from .holding import Holding
from .leases import Lease
from .manifests import Manifests
from .nodes import NodeTable
from .ray_leases import RayLeases
from .runs import RunRecord
from .succession import Succession

#: how often it is looked whether a run that waits for the store was cancelled
_LOOKS = 50


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

    async def _until_written(self, record: RunRecord, written: list[asyncio.Future[Any]]) -> None:
        """Return when store and ledger know of the run; a store that hangs is not waited for with GPUs held.

        Raises :class:`StoreError`, or :class:`RunCancelledError` as soon as the run is cancelled.
        """
        folder, committed = written[0], [*written[1:], *([record.committed] if record.committed else [])]
        threads, tries = self._manifests.threads, 1 if self._manifests.threads.is_late else _LOOKS
        while tries and not folder.done() and not record.cancelled:
            await asyncio.wait([folder], timeout=ANSWER_S / _LOOKS)
            tries -= 1
        if record.cancelled:
            threads.forget(folder)
            raise RunCancelledError(record.cancelled)
        await threads.answer(folder, 0.0)
        for done in committed:
            await done
        if record.cancelled:
            raise RunCancelledError(record.cancelled)

    async def carry_out(self, record: RunRecord, lease: Lease, written: list[asyncio.Future[Any]]) -> None:
        """The node gets its order while Ray makes the lease; the cell runs when both are there.

        Raises :class:`GpuReleaseError` when it came to nothing; then no node goes on with it.
        """
        try:
            try:
                await self._until_written(record, written)
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
