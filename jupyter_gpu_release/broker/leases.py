"""Leases: one detached Ray placement group per lease, pinned to the nodes that the policy chose.

Our own table says what is free: Ray's report lags. A group is removed when its run is released, and the lease is
gone once the nodes report its resources free again, so that the next group is created without waiting in Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec
import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ..core.messages import decode, encode
from ..core.node_messages import Granted, grant_socket
from ..core.run import LeaseState
from ..errors import ClusterError
from ..scheduling.snapshot import Slot
from .ledger import StoredLease
from .warm_ledger import Kept

log = logging.getLogger(__name__)

_POLL_S = (0.002,) * 20 + (0.005,) * 40 + (0.05,) * 20 + (0.5,)
_FIRST_LOOK_S = 0.001
#: with the group's own resources gone, others must be using the GPUs if they are not back after this
_OTHERS_TOOK_THEM_S = 0.3
#: a group that Ray has not placed after this is given back
_UNSCHEDULED_S = 4.0


class Placement(msgspec.Struct, frozen=True):
    """What the ledger keeps of a lease: slots as (node, gpus, cpus), and the ids that Ray gave on each."""

    slots: list[tuple[str, int, int]]
    gpu_ids: list[list[str]] = msgspec.field(default_factory=list)
    group: str = ""
    #: life of the first node's agent when the lease was made
    incarnation: str = ""


class Lease:
    """The GPUs that one run holds, or that are kept for the next run of the same kernel.

    ``run`` changes when a group is handed over as it is; of a warm lease it is the run that it is kept after.
    """

    def __init__(self, name: str, run: str, slots: tuple[Slot, ...]) -> None:
        self.name = name
        self.run = run
        self.slots = slots
        self.state = LeaseState.STARTING
        self.gpu_ids: tuple[tuple[str, ...], ...] = ()
        self.group: PlacementGroup | None = None
        self.incarnation = ""
        #: set while the lease is warm
        self.kept: Kept | None = None
        #: the tasks that tell the ids, while they are awaited
        self.asked: list[Any] = []
        self.refusal: ClusterError | None = None

    def stored(self) -> StoredLease:
        """The lease for the ledger."""
        placement = Placement(
            slots=[(slot.node, slot.gpus, slot.cpus) for slot in self.slots],
            gpu_ids=[list(ids) for ids in self.gpu_ids],
            group=self.group.id.hex() if self.group is not None else "",
            incarnation=self.incarnation,
        )
        return StoredLease(self.name, self.run, encode(placement))

    @classmethod
    def restored(cls, stored: StoredLease, group: PlacementGroup) -> Lease:
        """The lease that the ledger remembers, with its group found alive."""
        placement = decode(stored.placement, Placement)
        lease = cls(stored.lease, stored.run, tuple(Slot(*slot) for slot in placement.slots))
        lease.gpu_ids = tuple(tuple(ids) for ids in placement.gpu_ids)
        lease.group = group
        lease.incarnation = placement.incarnation
        lease.state = LeaseState.BUSY
        return lease

    def handed_to(self, run: str) -> Lease:
        """The same group with its GPUs, held by another run from now on."""
        lease = Lease(self.name, run, self.slots)
        lease.group, lease.gpu_ids, lease.state = self.group, self.gpu_ids, LeaseState.BUSY
        return lease

    def ids_on(self, node: str) -> list[str]:
        """Accelerator ids on ``node``."""
        return [i for slot, ids in zip(self.slots, self.gpu_ids, strict=False) if slot.node == node for i in ids]


def _tell_accelerator_ids(run: str = "", agent_socket: str = "") -> list[str]:
    """Runs inside a bundle and does nothing but tell which accelerators Ray gave it.

    The node's agent hears it at once, on this node; the gateway a few hops later.
    """
    by_kind: dict[str, list[str]] = ray.get_runtime_context().get_accelerator_ids()
    ids = [str(i) for i in by_kind.get("GPU", [])]
    if agent_socket:
        # only sooner than the gateway's own word, which comes in any case: an agent that is busy is not waited for
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sock:
            sock.sendto(encode(Granted(run, ids)), agent_socket)
    return ids


# max_calls=0: the worker stays for the next lease (Ray's default for GPU tasks is a new process each)
accelerator_ids = ray.remote(num_gpus=0, num_cpus=0, max_calls=0, max_retries=0)(_tell_accelerator_ids)


class LeaseTable:
    """All leases, by name. The table is changed on the event loop only."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        #: called when leases come or go
        self.on_change: Callable[[], None] = lambda: None
        #: GPUs in use by others than us, by node, as last seen while nothing of ours was changing
        self.external: dict[str, int] = {}

    def all(self) -> list[Lease]:
        """Every lease that is not gone."""
        return list(self._leases.values())

    def add(self, lease: Lease) -> Lease:
        """Count ``lease`` from now on."""
        self._leases[lease.name] = lease
        self.on_change()
        return lease

    def forget(self, lease: Lease) -> None:
        """Its resources are free (or its node is gone)."""
        lease.state = LeaseState.GONE
        if self._leases.get(lease.name) is lease:
            del self._leases[lease.name]
            self.on_change()

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
        """What our leases (in this state) hold on ``node``."""
        leases = [lease for lease in self._leases.values() if state in (None, lease.state)]
        slots = [slot for lease in leases for slot in lease.slots if slot.node == node]
        return Slot(node, sum(slot.gpus for slot in slots), sum(slot.cpus for slot in slots))

    @property
    def quiet(self) -> bool:
        """Whether no lease is being made or removed just now."""
        return all(lease.state in (LeaseState.BUSY, LeaseState.WARM) for lease in self._leases.values())


# ---------------------------------------------------------------------------------------- Ray's side
def begin(lease: Lease, runtime: str) -> None:
    """Ask Ray for the group and, inside it, for the accelerator ids; :func:`finish` waits for the answer.

    ``runtime``: the folder of the agents' sockets on their nodes.
    """
    bundles = [{"GPU": float(slot.gpus)} if slot.gpus else {"CPU": float(slot.cpus)} for slot in lease.slots]
    pins = [{"ray.io/node-id": slot.node} for slot in lease.slots]
    try:
        lease.group = placement_group(
            bundles, strategy="PACK", name=lease.name, lifetime="detached", bundle_label_selector=pins
        )
    except ray.exceptions.RayError as error:
        lease.refusal = ClusterError(f"Ray refuses the placement group: {error}")
        return
    lease.asked = [
        accelerator_ids.options(
            num_gpus=slot.gpus,
            num_cpus=slot.cpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(lease.group, index),
        ).remote(lease.run, grant_socket(runtime, slot.node))
        for index, slot in enumerate(lease.slots)
    ]


async def finish(lease: Lease) -> None:
    """Wait until Ray has granted the group and told its accelerator ids.

    Raises :class:`ClusterError` when Ray does not grant it (others use the GPUs); then nothing is left.
    """
    group = lease.group
    if group is None or lease.refusal is not None:
        raise lease.refusal or ClusterError("the lease was not begun")
    watch = asyncio.get_running_loop().call_later(_UNSCHEDULED_S, _give_up_unplaced, group)
    try:
        lease.gpu_ids = tuple([tuple(await asked) for asked in lease.asked])
    except ray.exceptions.RayError as error:
        remove_placement_group(group)
        raise ClusterError(f"Ray does not grant the GPUs: {_last_line(error)}") from error
    finally:
        watch.cancel()
        lease.asked = []
    lease.state = LeaseState.BUSY


def _give_up_unplaced(group: PlacementGroup) -> None:
    """A group that Ray cannot place is removed, which fails its tasks; one that waits for a worker is not."""
    if placement_group_table(group).get("state") != "CREATED":
        remove_placement_group(group)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__


async def release(
    lease: Lease, table: LeaseTable, totals: dict[str, int], silent: frozenset[str] = frozenset()
) -> None:
    """Remove the group; returns when its nodes report the resources free (or are gone, or known to be ``silent``)."""
    lease.state = LeaseState.RELEASING
    group = lease.group
    if group is None:
        return
    remove_placement_group(group)
    started, polls = time.monotonic(), 0
    await asyncio.sleep(_FIRST_LOOK_S)
    slots = [slot for slot in lease.slots if slot.node not in silent]
    while not _is_free(slots, group.id.hex(), table, totals, time.monotonic() - started):
        await asyncio.sleep(_POLL_S[min(polls, len(_POLL_S) - 1)])
        polls += 1
        if polls % 100 == 0:
            log.warning("lease %s: its resources are not reported free after %.1f s", lease.name,
                        time.monotonic() - started)  # fmt: skip


def _is_free(slots: list[Slot], group: str, table: LeaseTable, totals: dict[str, int], waited_s: float) -> bool:
    available = available_resources_per_node()
    for slot in slots:
        free = available.get(slot.node)
        if free is None:  # the node is gone, and the lease with it
            continue
        if any(group in name for name in free):
            return False
        others = table.held(slot.node).gpus - slot.gpus
        expected = totals.get(slot.node, 0) - others - table.external.get(slot.node, 0)
        if slot.gpus and free.get("GPU", 0.0) < expected and waited_s < _OTHERS_TOOK_THEM_S:
            return False
    return True


def group_name(run: str) -> str:
    """The name of a run's placement group; it says whose it is, since Ray lists the groups of all namespaces."""
    return f"jgr-{ray.get_runtime_context().namespace}-{run}"


def living_groups() -> dict[str, PlacementGroup]:
    """Placement groups of this namespace's gateway in Ray, by name."""
    found = {}
    for facts in placement_group_table().values():
        if (facts["name"] or "").startswith(group_name("")) and facts["state"] != "REMOVED":
            found[facts["name"]] = group_of(facts["placement_group_id"])
    return found


def group_of(identity: str) -> PlacementGroup:
    """The handle of a group by its hex id."""
    return PlacementGroup(ray.PlacementGroupID(bytes.fromhex(identity)))


def external_gpus(table: LeaseTable, totals: dict[str, int]) -> dict[str, int]:
    """GPUs in use in Ray by others, by node; right only while the table is quiet."""
    available = available_resources_per_node()
    used = {}
    for node, total in totals.items():
        if node in available:
            used[node] = max(0, total - int(available[node].get("GPU", 0)) - table.held(node).gpus)
    return used


async def warm_worker(node: str) -> None:
    """Have Ray start a worker on ``node``, so that the first lease task need not wait for one."""
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    with contextlib.suppress(ray.exceptions.RayError):
        await accelerator_ids.options(scheduling_strategy=strategy).remote()
