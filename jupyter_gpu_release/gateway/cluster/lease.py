"""Leases: one detached Ray placement group per lease, pinned to the nodes that the policy chose.

Our own table says what is free: Ray's report lags. How Ray is asked for them: ``gateway/cluster/placement_groups.py``.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Protocol

import msgspec
from ray.util.placement_group import PlacementGroup

from ...protocol.node import AttemptId
from ...protocol.states import LeaseState
from ...protocol.wire import decode, encode
from ...scheduling.decisions import Slot
from ...units import sum_gpus
from ..db.rows import StoredLease, WarmLeaseRow

#: GPUs are waited for at most so long until Ray reports them free: cells end then, and the queue counts on them no more
FREE_S = 20.0


class Placement(msgspec.Struct, frozen=True):
    """The ledger's record of a lease: slots as (node, gpus, cpus), and the ids that Ray gave on each."""

    slots: list[tuple[str, float, int]]
    gpu_ids: list[list[str]] = msgspec.field(default_factory=list)
    group: str = ""
    #: life of the first node's agent when the lease was made
    incarnation: str = ""
    #: the attempt at the run; None: a gateway from before `start --upgrade` wrote it
    attempt: int | None = None


class Lease:
    """The GPUs that one run holds, or that are kept for the next run of the same kernel.

    ``attempt_id`` changes when a group is handed over as it is; of a warm lease it is the one that it is kept after.
    """

    def __init__(self, name: str, attempt_id: AttemptId, slots: tuple[Slot, ...]) -> None:
        self.name = name
        self.attempt_id = attempt_id
        self.slots = slots
        self.state = LeaseState.STARTING
        self.gpu_ids: tuple[tuple[str, ...], ...] = ()
        self.group: PlacementGroup | None = None
        self.incarnation = ""
        #: when its GPUs were free, or another run's (unix seconds); the next run is granted them from then on
        self.gone_at: float | None = None
        #: set while the lease is warm
        self.kept: WarmLeaseRow | None = None
        #: Ray makes the group, and answers with the tasks that tell the ids; ``group`` is set a little sooner
        self.making: asyncio.Future[list[Any]] | None = None
        #: its run's folder and its row in the ledger, which threads write
        self.written: list[asyncio.Future[Any]] = []
        #: the start of its run, which waits for Ray's word of the ids; None for a lease of an earlier life
        self.granting: asyncio.Task[None] | None = None

    @property
    def run(self) -> str:
        """The run that holds it."""
        return self.attempt_id.run

    def stored(self) -> StoredLease:
        """The lease for the ledger."""
        placement = Placement(
            slots=[(slot.node, slot.gpus, slot.cpus) for slot in self.slots],
            gpu_ids=[list(ids) for ids in self.gpu_ids],
            group=self.group.id.hex() if self.group is not None else "",
            incarnation=self.incarnation,
            attempt=self.attempt_id.attempt,
        )
        return StoredLease(self.name, self.run, encode(placement))

    @classmethod
    def restored(cls, stored: StoredLease, group: PlacementGroup) -> Lease:
        """The lease that the ledger remembers, with its group found alive."""
        placement = decode(stored.placement, Placement)
        lease = cls(
            stored.lease, AttemptId(stored.run, placement.attempt or 0), tuple(Slot(*slot) for slot in placement.slots)
        )
        lease.gpu_ids = tuple(tuple(ids) for ids in placement.gpu_ids)
        lease.group = group
        lease.incarnation = placement.incarnation
        lease.state = LeaseState.BUSY
        return lease

    def handed_to(self, attempt_id: AttemptId) -> Lease:
        """The same group with its GPUs, held by another run from now on."""
        lease = Lease(self.name, attempt_id, self.slots)
        lease.group, lease.gpu_ids, lease.state = self.group, self.gpu_ids, LeaseState.BUSY
        return lease

    def ids_on(self, node: str) -> list[str]:
        """Accelerator ids on ``node``."""
        return [i for slot, ids in zip(self.slots, self.gpu_ids, strict=False) if slot.node == node for i in ids]


class LeaseListener(Protocol):
    """Hears of leases, on the gateway's event loop, in the middle of a change: it must neither wait nor raise."""

    def on_leases_changed(self) -> None:
        """Leases came, went, or are kept for another time: what the status shows of GPUs is another."""

    def on_gpus_free(self) -> None:
        """GPUs that were kept for a kernel, or are kept on other terms, may be somebody else's: decide anew."""


class LeaseTable:
    """All leases, by name. The table is changed on the event loop only."""

    def __init__(self, listener: LeaseListener) -> None:
        self._listener = listener
        self._leases: dict[str, Lease] = {}
        #: the same by node: each decision asks what is held there
        self._on_node: dict[str, dict[str, Lease]] = {}
        #: counts the leases that came and went
        self.changes = 0
        #: GPUs in use by others than us, by node, as last seen while nothing of ours was changing
        self.external: dict[str, int] = {}
        #: how many look for a GPU of their own in Ray just now: what others use is not known meanwhile
        self.seekers = 0

    def all(self) -> list[Lease]:
        """Every lease that is not gone."""
        return list(self._leases.values())

    def add(self, lease: Lease) -> Lease:
        """Count ``lease`` from now on."""
        self._drop(lease.name)
        self._leases[lease.name] = lease
        for slot in lease.slots:
            self._on_node.setdefault(slot.node, {})[lease.name] = lease
        self.changes += 1
        self._listener.on_leases_changed()
        return lease

    def drop_lease(self, lease: Lease) -> bool:
        """Forget a lease whose resources are free (or whose node is gone). False: a newer lease has its name by now."""
        lease.state, lease.gone_at = LeaseState.GONE, time.time()
        newest = self._leases.get(lease.name, lease) is lease
        if newest and self._drop(lease.name):
            self.changes += 1
            self._listener.on_leases_changed()
        return newest

    def _drop(self, name: str) -> bool:
        lease = self._leases.pop(name, None)
        for slot in lease.slots if lease is not None else ():
            self._on_node[slot.node].pop(name, None)
        return lease is not None

    def of_run(self, run: str) -> Lease | None:
        """The lease that ``run`` holds."""
        return next((lease for lease in self._leases.values() if lease.run == run), None)

    def warm(self) -> list[Lease]:
        """Leases without a run that kernels keep."""
        return [lease for lease in self._leases.values() if lease.state is LeaseState.WARM]

    def find(self, name: str) -> Lease | None:
        """A lease by its name."""
        return self._leases.get(name)

    def held(self, node: str, state: LeaseState | None = None) -> Slot:
        """The GPUs and CPUs that our leases (in this state) hold on ``node``."""
        slots = [
            slot
            for lease in self._on_node.get(node, {}).values()
            for slot in lease.slots
            if slot.node == node and (state is None or lease.state is state)
        ]
        return Slot(node, sum_gpus(slot.gpus for slot in slots), sum(slot.cpus for slot in slots))

    def gpus_in_use(self, node: str) -> int:
        """GPUs of a node that leases hold; a shared one counts once, where Ray has told that it is one."""
        untold = [lease for lease in self._on_node.get(node, {}).values() if not lease.gpu_ids]
        held = sum(slot.gpus for lease in untold for slot in lease.slots if slot.node == node)
        return len(self.holders_on(node)) + math.ceil(held)

    def holders_on(self, node: str) -> dict[str, list[Lease]]:
        """The leases of each GPU on ``node`` that is held, by the GPU's index; several where it is shared."""
        found: dict[str, list[Lease]] = {}
        for lease in self._on_node.get(node, {}).values():
            for index in lease.ids_on(node):
                found.setdefault(index, []).append(lease)
        return found

    def sharing(self, lease: Lease) -> list[Lease]:
        """All that have a part of the GPU of which a lease is a part; none where it is whole."""
        node, part = lease.slots[0].node, lease.slots[0].gpus
        ids = lease.ids_on(node)
        return self.holders_on(node).get(ids[0], []) if 0 < part < 1 and ids else []

    def names_on(self, node: str) -> set[str]:
        """The names of all leases on ``node``."""
        return set(self._on_node.get(node, ()))

    @property
    def quiet(self) -> bool:
        """Tell if no lease is being made or removed just now."""
        settled = (LeaseState.BUSY, LeaseState.WARM)
        return not self.seekers and all(lease.state in settled for lease in self._leases.values())
