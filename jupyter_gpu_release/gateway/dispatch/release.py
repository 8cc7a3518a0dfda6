"""``LeaseReleaser``: gives leases back to Ray."""

from __future__ import annotations

from functools import partial

from ..cluster.lease import Lease, LeaseTable
from ..cluster.nodes import NodeTable
from ..cluster.placement_groups import RayLeases
from ..db import database
from ..db.writer import LedgerWriter


class LeaseReleaser:
    """Goes on trying until a lease's GPUs are free."""

    def __init__(self, leases: LeaseTable, nodes: NodeTable, ray_leases: RayLeases, ledger: LedgerWriter) -> None:
        self._leases = leases
        self._nodes = nodes
        self._ray_leases = ray_leases
        self._ledger = ledger
        #: leases that are being given back
        self.freeing: set[Lease] = set()

    async def free(self, lease: Lease, silent: frozenset[str] = frozenset()) -> None:
        """Give a lease back; returns when its GPUs are free. ``silent``: nodes that are not waited for."""
        self.freeing.add(lease)
        try:
            await self._ray_leases.release(lease, self._nodes.totals(), silent)
        finally:
            self.freeing.discard(lease)
        if self._leases.drop_lease(lease):  # else a newer lease has the name, and its place in the ledger
            self._ledger.write_later(lease.name, partial(database.drop_lease, lease=lease.name))
