"""What the ledger and the views of runs say of leases: who holds which GPUs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from ..core.run import RunState
from . import ledger
from .journal import Journal
from .leases import Lease
from .nodes import NodeTable
from .runs import RunRecord, RunTable, Told


class Holding:
    """Writes down that runs hold leases."""

    def __init__(self, runs: RunTable, nodes: NodeTable, journal: Journal) -> None:
        self._runs = runs
        self._nodes = nodes
        self._journal = journal

    def hold(self, record: RunRecord, lease: Lease) -> asyncio.Future[None]:
        """The run holds the lease from now on; the future is done once that is committed."""
        record.lease = lease
        first = self._nodes.find(lease.slots[0].node)
        lease.incarnation = first.info.incarnation if first is not None and first.info is not None else ""
        return self._journal.put(partial(ledger.put_lease, lease=lease.stored()), replaces=lease.name)

    def to_starting(self, record: RunRecord, lease: Lease, granted_at: float, *, on_kept: bool = False) -> None:
        """The run was granted its lease at ``granted_at`` (seconds since the epoch, perhaps of the node's clock)."""
        granted_at = max(granted_at, record.view.submitted_at)
        hosts = [found.host for slot in lease.slots if (found := self._nodes.find(slot.node)) is not None]
        self._runs.change(
            record, RunState.STARTING, told=Told.SOON, granted_at=granted_at, position=None, reason="", hosts=hosts,
            on_kept=on_kept, **(self._accelerators(lease) if lease.gpu_ids else {}),
        )  # fmt: skip

    def note_accelerators(self, record: RunRecord, lease: Lease) -> None:
        """In the ledger and in the view; a quick cell may have ended before its gateway knows them."""
        if record.lease is lease:
            self._journal.later(lease.name, partial(ledger.put_lease, lease=lease.stored()))
            self._runs.change(record, told=Told.SOON, **self._accelerators(lease))

    def _accelerators(self, lease: Lease) -> dict[str, Any]:
        found = self._nodes.find(lease.slots[0].node)
        cards = found.info.gpus if found is not None and found.info is not None else []
        ids = [i for per_slot in lease.gpu_ids for i in per_slot]
        return {"gpu_ids": ids, "gpu_name": cards[0].name if cards and ids else ""}
