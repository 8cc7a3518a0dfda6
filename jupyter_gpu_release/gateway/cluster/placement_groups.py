"""Leases as requests to Ray: placement groups made, given back (for certain), and found again.

A group is removed when its run is released, and the lease is gone once the nodes report its resources free again, so
that the next group is created without waiting in Ray.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ...errors import ClusterError
from ...protocol.states import LeaseState
from ...scheduling.decisions import Slot
from ..db import database
from ..db.writer import LedgerWriter
from .lease import Lease, LeaseTable
from .lease_workers import accelerator_ids, nudge_workers
from .nodes import NodeTable
from .ray_calls import RayCalls, awaited, last_line

log = logging.getLogger(__name__)

_POLL_S = (0.002,) * 20 + (0.005,) * 40 + (0.05,) * 20 + (0.5,)
_FIRST_LOOK_S = 0.001
#: with the group's own resources gone, others must be using the GPUs if they are not back after this
_OTHERS_TOOK_THEM_S = 0.3
#: Ray counts in steps of 1/10000
_ROUNDING = 0.001
#: a group that Ray has not placed after this is given back …
_UNSCHEDULED_S = 4.0
#: … and one in which no worker has begun after this
_NO_WORKER_S = 60.0
#: pauses between tries to have a group removed
_AGAIN_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class RayLeases:
    """Ray's side of the lease table. All waits have limits, but for :meth:`release`, which goes on until it is done."""

    def __init__(self, calls: RayCalls, table: LeaseTable, is_lost: Callable[[str], bool]) -> None:
        self._calls = calls
        self._table = table
        #: whether a node is not waited for any more, whatever Ray believes
        self._is_lost = is_lost

    # ------------------------------------------------------------------------------------------ make
    def group_name(self, run: str) -> str:
        """The name of the placement group, and of the lease, of a run."""
        return group_name(run)

    def begin_making(self, lease: Lease, runtime: str) -> None:
        """Ask Ray for the group and, inside it, for the accelerator ids; :meth:`finish` waits for the answer.

        ``runtime``: the folder of the agents' sockets on their nodes.
        """
        lease.making = self._calls.begin(_make, lease, runtime)

    async def finish(self, lease: Lease) -> None:
        """Wait until Ray has granted the group and told its accelerator ids.

        Raises :class:`ClusterError` when Ray does not grant it (others use the GPUs); it is to be released then, too.
        """
        if lease.making is None:
            raise ClusterError("the lease was not begun")
        try:
            asked = await self._calls.answer(asyncio.shield(lease.making))
            lease.gpu_ids = tuple([tuple(ids) for ids in await self._told(lease, asked)])
        except ray.exceptions.RayError as error:
            raise ClusterError(f"Ray does not grant the GPUs: {last_line(error)}") from error
        lease.making = None
        lease.state = LeaseState.BUSY

    async def _told(self, lease: Lease, asked: list[Any]) -> list[list[str]]:
        """The answers of the bundles' tasks. A group that Ray cannot place is removed, which fails its tasks; one that
        waits for a worker is not, for some time.
        """
        answers = asyncio.gather(*(awaited(task) for task in asked))
        answers.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waits or not
        deadline = time.monotonic() + _NO_WORKER_S
        try:
            await nudge_workers([slot.node for slot in lease.slots], answers)
            while not (await asyncio.wait({answers}, timeout=_UNSCHEDULED_S))[0]:
                group = lease.group
                if group is not None and not await self._is_placed(group):
                    await self._calls.ask(remove_placement_group, group)
                if time.monotonic() > deadline:
                    raise ClusterError(f"no worker of Ray's has begun within {_NO_WORKER_S:g} s")
        finally:
            answers.cancel()
        return list(answers.result())

    async def _is_placed(self, group: PlacementGroup) -> bool:
        return bool((await self._calls.ask(placement_group_table, group)).get("state") == "CREATED")

    async def _group(self, lease: Lease) -> PlacementGroup | None:
        """The group, or the one that Ray is making just now, however long that takes."""
        if lease.making is not None:
            await asyncio.wait({lease.making})
        return lease.group

    # --------------------------------------------------------------------------------------- release
    async def _remove(self, lease: Lease) -> PlacementGroup | None:
        """Have the group removed; a Ray that fails or is silent is asked again until it has heard it."""
        group, tries = await self._group(lease), 0
        while group is not None:
            try:
                await self._calls.ask(remove_placement_group, group)
            except ClusterError as error:
                log.warning("lease %s is not removed yet: %s", lease.name, error.message)
                await asyncio.sleep(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])
                tries += 1
            else:
                break
        return group

    async def release(self, lease: Lease, totals: dict[str, int], silent: frozenset[str] = frozenset()) -> None:
        """Remove the group; returns when its nodes report it free (or are gone, or known to be ``silent``).

        Never raises; who must not wait without end waits for the task that this runs in.
        """
        lease.state = LeaseState.RELEASING
        group = await self._remove(lease)
        if group is None:
            return
        started, polls = time.monotonic(), 0
        await asyncio.sleep(_FIRST_LOOK_S)
        slots = [slot for slot in lease.slots if slot.node not in silent]
        while not await self._is_free(slots, group.id.hex(), totals, time.monotonic() - started):
            await asyncio.sleep(_POLL_S[min(polls, len(_POLL_S) - 1)])
            polls += 1
            if polls % 100 == 0:
                log.warning(
                    "lease %s: its resources are not reported free after %.1f s", lease.name, time.monotonic() - started
                )

    async def _is_free(self, slots: list[Slot], group: str, totals: dict[str, int], waited_s: float) -> bool:
        try:
            available = await self._calls.ask(available_resources_per_node)
        except ClusterError:
            return False
        for slot in slots:
            free = available.get(slot.node)
            if free is None or self._is_lost(slot.node):  # the node is gone, and the lease with it
                continue
            if any(group in name for name in free):
                return False
            others = self._table.held(slot.node).gpus - slot.gpus
            expected = totals.get(slot.node, 0) - others - self._table.external.get(slot.node, 0)
            if slot.gpus and free.get("GPU", 0.0) < expected - _ROUNDING and waited_s < _OTHERS_TOOK_THEM_S:
                return False
        return True

    # ------------------------------------------------------------------------------------------ look
    async def groups(self, limit_s: float | None = None) -> dict[str, PlacementGroup]:
        """Placement groups of this namespace's gateway in Ray, by name; raises :class:`ClusterError`."""
        return await self._calls.answer(self._calls.begin(living_groups), limit_s)

    async def groups_aside(self) -> dict[str, PlacementGroup]:
        """Groups that hold single GPUs which get no runs, by name; raises :class:`ClusterError`."""
        return await self._calls.ask(groups_aside)

    async def remove_stranger(self, group: PlacementGroup) -> None:
        """Remove a group that belongs to no lease; raises :class:`ClusterError`."""
        await self._calls.ask(remove_placement_group, group)

    async def nodes(self, limit_s: float | None = None) -> list[dict[str, Any]]:
        """``ray.nodes()``; raises :class:`ClusterError`."""
        return await self._calls.answer(self._calls.begin(ray.nodes), limit_s)

    async def external_gpus(self, totals: dict[str, int]) -> dict[str, int] | None:
        """GPUs in use in Ray by others, by node; None while our own leases change, or when Ray does not say."""
        before = self._table.changes
        try:
            available = await self._calls.ask(available_resources_per_node)
        except ClusterError as error:
            log.warning("%s", error.message)
            return None
        if self._table.changes != before or not self._table.quiet:
            return None
        held: dict[str, float] = {node: self._table.held(node).gpus for node in totals}
        return {
            node: max(0, math.ceil(total - available[node].get("GPU", 0) - held[node] - _ROUNDING))
            for node, total in totals.items()
            if node in available
        }


def _make(lease: Lease, runtime: str) -> list[Any]:
    """Make a group, in a thread. Each task is a reference to the ids of one bundle."""
    bundles = [{"GPU": float(slot.gpus)} if slot.gpus else {"CPU": float(slot.cpus)} for slot in lease.slots]
    pins = [{"ray.io/node-id": slot.node} for slot in lease.slots]
    group = placement_group(bundles, strategy="PACK", name=lease.name, lifetime="detached", bundle_label_selector=pins)
    lease.group = group
    return [
        accelerator_ids.options(
            num_gpus=slot.gpus, num_cpus=slot.cpus, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)
        ).remote(str(lease.attempt_id), runtime, slot.node)
        for index, slot in enumerate(lease.slots)
    ]


def group_name(run: str) -> str:
    """The name of a run's placement group; it says whose it is, since Ray lists the groups of all namespaces."""
    return f"jgr-{ray.get_runtime_context().namespace}-{run}"


def living_groups() -> dict[str, PlacementGroup]:
    """Like :meth:`RayLeases.groups`, for a process without an event loop."""
    found = {}
    for facts in placement_group_table().values():
        if (facts["name"] or "").startswith(group_name("")) and facts["state"] != "REMOVED":
            found[facts["name"]] = group_of(facts["placement_group_id"])
    return found


def aside_prefix() -> str:
    """The beginning of the names of groups that hold single GPUs: no lease is called so."""
    return f"jgr-aside-{ray.get_runtime_context().namespace}-"


def groups_aside() -> dict[str, PlacementGroup]:
    """Like :meth:`RayLeases.groups_aside`, for a process without an event loop."""
    return {
        facts["name"]: group_of(facts["placement_group_id"])
        for facts in placement_group_table().values()
        if (facts["name"] or "").startswith(aside_prefix()) and facts["state"] != "REMOVED"
    }


def group_of(identity: str) -> PlacementGroup:
    """The handle of a group by its hex id."""
    return PlacementGroup(ray.PlacementGroupID(bytes.fromhex(identity)))


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
