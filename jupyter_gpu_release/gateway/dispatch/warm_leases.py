"""Warm leases: GPUs that stay with a kernel between two of its cells, and the ends of that."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec
from sqlalchemy.engine import Connection

from ...errors import ConflictError
from ...host.background import BackgroundWork
from ...protocol.node import AttemptId
from ...protocol.runs import KeptLease
from ...protocol.states import LeaseState
from ...scheduling.warm_leases import is_worth_keeping
from ...units import sum_gpus
from ..cluster.lease import Lease, LeaseListener, LeaseTable
from ..cluster.nodes import NodeTable
from ..cluster.placement_groups import LeaseReleaser
from ..db.rows import WarmLeaseRow
from ..db.warm_leases import end_warm_lease, put_warm_lease
from ..db.writer import LedgerWriter, Write
from ..runs.record import RunRecord
from ..runs.sessions import SessionTable

log = logging.getLogger(__name__)


class WarmLeases:
    """Leases without a run. ``most_s``: nothing is kept for longer than this after a cell (0: nothing is kept)."""

    def __init__(
        self,
        leases: LeaseTable,
        nodes: NodeTable,
        ledger: LedgerWriter,
        sessions: SessionTable,
        releaser: LeaseReleaser,
        listener: LeaseListener,
        most_s: float,
    ) -> None:
        self.most_s = most_s
        self._leases = leases
        self._nodes = nodes
        self._ledger = ledger
        self._sessions = sessions
        self._releaser = releaser
        self._listener = listener
        self._spawn = BackgroundWork().spawn

    # --------------------------------------------------------------------------------- begin and end
    async def until_granted(self, record: RunRecord) -> None:
        """A cell that is to keep its GPUs may have ended before their ids were known here."""
        granting = record.lease.granting if record.lease is not None and not record.lease.gpu_ids else None
        if granting is not None and self._is_asked_for(record):
            await asyncio.wait({granting})

    def is_possible(self, record: RunRecord) -> bool:
        """Tell if it was asked that the lease be kept after the run."""
        return min(record.request.keep_s, self.most_s) > 0

    def _is_asked_for(self, record: RunRecord) -> bool:
        outcome = record.outcome
        return (
            self.is_possible(record)
            and outcome is not None
            and is_worth_keeping(outcome)
            and not record.cancellation.is_given_up
            and not record.view.detached
            and self._sessions.is_open(record.view.session)
        )

    def keep_lease(self, record: RunRecord, lease: Lease, is_left: Callable[[Lease], bool]) -> KeptLease | None:
        """Keep the lease of a run that has ended, where that was asked for and nobody else is to have it.

        ``is_left``: whether nobody who waits takes a warm lease away at once.
        """
        if not self._is_asked_for(record) or lease.state is not LeaseState.BUSY or not any(lease.gpu_ids):
            return None
        if any(self._nodes.is_aside(slot.node, lease.ids_on(slot.node)) for slot in lease.slots):
            return None
        request, view, now_s = record.request, record.view, time.time()
        for_s = min(request.keep_s, self.most_s)
        lease.state = LeaseState.WARM
        lease.kept = WarmLeaseRow(
            user=view.user,
            session=view.session,
            since_s=now_s,
            until_s=now_s + for_s,
            auto=request.keep_auto,
            ask=request.ask,
            notebook=view.notebook,
            cell=view.cell,
            queue=view.queue,
            kernel=view.kernel,
        )
        if not is_left(lease):
            lease.state, lease.kept = LeaseState.BUSY, None
            return None
        capped = request.keep_s > self.most_s and not request.keep_auto
        return KeptLease(lease.kept.until_s, for_s, request.keep_auto, capped)

    def written(self, lease: Lease) -> Write:
        """A record of the lease for the ledger (which may not know the GPUs' ids yet), committed with the run's end.

        One that is warm no longer by then is left out: its end is committed next, or was before a disk had room again.
        """
        stored = lease.stored()

        def write(connection: Connection) -> None:
            if (kept := lease.kept) is not None:
                put_warm_lease(connection, stored, kept)

        return write

    def adopt(self, lease: Lease, kept: WarmLeaseRow) -> None:
        """A lease that the gateway's earlier life kept."""
        lease.state, lease.kept = LeaseState.WARM, kept
        self._leases.add(lease)

    def take_lease(self, name: str, attempt_id: AttemptId) -> tuple[Lease, WarmLeaseRow]:
        """Hand a warm lease over to a run, as it is; returns who kept it, too."""
        lease = self._leases.find(name)
        assert lease is not None
        kept = self._end(lease, f"run {attempt_id.run}")
        return self._leases.add(lease.handed_to(attempt_id)), kept

    def give_up(self, lease: Lease, why: str) -> asyncio.Task[None] | None:
        """Give a warm lease back (nothing happens when it is warm no longer); the task ends when its GPUs are free."""
        if lease.state is not LeaseState.WARM:
            return None
        log.info("lease %s is given back after run %s: %s", lease.name, lease.run, why)
        self._end(lease, why)
        lease.state = LeaseState.RELEASING
        self._listener.on_leases_changed()
        return self._spawn(self._give_back(lease))

    async def _give_back(self, lease: Lease) -> None:
        await self._releaser.free(lease)
        self._listener.on_gpus_free()

    def _end(self, lease: Lease, why: str) -> WarmLeaseRow:
        kept, lease.kept = lease.kept, None
        assert kept is not None
        self.count(lease.name, lease.run, sum_gpus(slot.gpus for slot in lease.slots), kept, time.time(), why)
        return kept

    def count(self, lease: str, run: str, gpus: float, kept: WarmLeaseRow, at_s: float, why: str) -> None:
        """Add the time for which a lease was warm to what is remembered, in place of the lease itself."""
        self._ledger.write(partial(end_warm_lease, lease=lease, run=run, gpus=gpus, kept=kept, at_s=at_s, why=why))

    # ------------------------------------------------------------------------------------ many of them
    def end_of(self, session: str) -> None:
        """A kernel has ended."""
        for lease in self._leases.warm():
            if lease.kept is not None and lease.kept.session == session:
                self.give_up(lease, "its kernel ended")

    def tidy(self) -> None:
        """Give up what nobody can come back to: the node or the kernel is gone."""
        for lease in self._leases.warm():
            nodes = [self._nodes.find(slot.node) for slot in lease.slots]
            if any(node is None or not node.alive or node.is_lost for node in nodes):
                self.give_up(lease, "its node is gone")
            elif lease.kept is not None and not self._sessions.is_open(lease.kept.session):
                self.give_up(lease, "its kernel is gone")

    # ----------------------------------------------------------------------------------------- extend
    def extend(self, lease: Lease, keep_s: float) -> WarmLeaseRow:
        """Keep a lease for ``keep_s`` seconds from now (never shorter than it was), whoever waits.

        No longer than the gateway's maximum; raises :class:`ConflictError` where nothing may be kept.
        """
        if self.most_s <= 0 or lease.kept is None:
            raise ConflictError(
                "this gateway keeps no GPUs between cells", hint="its operator sets JUPYTER_GPU_MAX_KEEP"
            )
        until_s = max(lease.kept.until_s, time.time() + min(keep_s, self.most_s))
        lease.kept = msgspec.structs.replace(lease.kept, until_s=until_s, auto=False)
        self._ledger.write(self.written(lease))
        self._listener.on_leases_changed()
        self._listener.on_gpus_free()
        return lease.kept
