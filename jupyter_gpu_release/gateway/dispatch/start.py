"""Starts a run: lease, orders, first facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from ...errors import ClusterError, GpuReleaseError
from ...host.threads import ANSWER_S
from ...protocol.node import GatewayAccess
from ..auth.unix_users import UnixUsers
from ..cluster.environment_builds import EnvironmentBuilds
from ..cluster.lease import Lease, LeaseTable
from ..cluster.nodes import Node, NodeTable
from ..cluster.placement_groups import RayLeases
from ..db import database
from ..db.writer import LedgerWriter
from ..queues_file_watch import QueueRules
from ..runs.events import NotifyWhen
from ..runs.live_runs import RunTable
from ..runs.manifests import Manifests
from ..runs.record import RunRecord
from . import gangs

#: (the run that drives a sweep, its user) → what it sends trials with; raises :class:`LedgerError`
LetDriverIn = Callable[[str, str], Awaitable[GatewayAccess]]
#: how often it is looked whether a run that waits for the store was cancelled
_LOOKS = 50


class RunStarter:
    """Starts runs on leases that are there, or that Ray is about to make."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        leases: LeaseTable,
        manifests: Manifests,
        ledger: LedgerWriter,
        ray_leases: RayLeases,
        rules: QueueRules,
        environments: EnvironmentBuilds,
        let_driver_in: LetDriverIn,
        users: UnixUsers | None = None,
    ) -> None:
        self._environments = environments
        self._let_driver_in = let_driver_in
        self._runs = runs
        self._users = users
        self._rules = rules
        self._nodes = nodes
        self._leases = leases
        self._manifests = manifests
        self._ledger = ledger
        self._ray_leases = ray_leases

    def prepare(self, record: RunRecord, lease: Lease) -> None:
        """Begin with what takes long: Ray makes the lease, and threads write it and the run's folder down."""
        if not lease.gpu_ids:  # first: its thread, which has the longest way, shall not wait for the others
            self._ray_leases.begin_making(lease, self._nodes.runtime)
        first = self._nodes.find(lease.slots[0].node)
        lease.incarnation = first.info.incarnation if first is not None and first.info is not None else ""
        committed = self._ledger.write(partial(database.put_lease, lease=lease.stored()), replaces=lease.name)
        lease.written = [self._manifests.create_folder(record.view.user, record.run), committed]

    def facts_of(self, lease: Lease) -> dict[str, Any]:
        """The hosts of a lease and, where they are known, its accelerators, for a run's view."""
        return {"hosts": self._nodes.hosts_of(lease.slots), **(self._accelerators(lease) if lease.gpu_ids else {})}

    def _note_accelerators(self, record: RunRecord, lease: Lease) -> None:
        """Note them in ledger and view; a quick cell may have ended before its gateway knows them."""
        if record.lease is lease:
            self._ledger.write_later(lease.name, partial(database.put_lease, lease=lease.stored()))
            self._runs.change(record, told=NotifyWhen.SOON, **self._accelerators(lease))
            self._note_neighbours(lease)

    def _note_neighbours(self, lease: Lease) -> None:
        """Tell the runs that share a GPU with how many others they do."""
        sharers = self._leases.sharing(lease)
        for each in sharers:
            record = self._runs.get(each.run)
            if record is not None and record.lease is each and record.view.shared_with < len(sharers) - 1:
                self._runs.change(record, told=NotifyWhen.SOON, shared_with=len(sharers) - 1)

    def _accelerators(self, lease: Lease) -> dict[str, Any]:
        found = self._nodes.find(lease.slots[0].node)
        gpus = found.info.gpus if found is not None and found.info is not None else []
        ids = [i for per_slot in lease.gpu_ids for i in per_slot]
        return {"gpu_ids": ids, "gpu_name": next((gpu.name for gpu in gpus if gpu.name), "") if ids else ""}

    async def _until_written(self, record: RunRecord, lease: Lease) -> None:
        """Return when store and ledger know of the run; a store that hangs is not waited for with GPUs held.

        Raises :class:`StoreError`, or :class:`RunCancelledError` as soon as the run is cancelled.
        """
        folder, committed = lease.written[0], [lease.written[1], *([record.committed] if record.committed else [])]
        threads, tries = self._manifests.threads, 1 if self._manifests.threads.has_late_answer else _LOOKS
        while tries and not folder.done() and not record.cancellation.reason:
            await asyncio.wait([folder], timeout=ANSWER_S / _LOOKS)
            tries -= 1
        if record.cancellation.reason:
            threads.forget(folder)
            raise record.cancellation.error()
        if not folder.done():
            await threads.wait_for_answer(folder, 0.0)
        for done in (folder, *committed):
            await done
        if record.cancellation.reason:
            raise record.cancellation.error()

    def _check_built(self, record: RunRecord, lease: Lease) -> None:
        """Raise :class:`ClusterError` if a node has lost the run's environment meanwhile: nothing is built while GPUs
        are held, so the run gives them back and waits.
        """
        plan = record.request.environment
        if plan is not None and (lacking := self._environments.lacking(self._nodes_of(lease), plan, record.view.user)):
            raise ClusterError(
                f"{lacking[0].host} has its environment no longer", hint="the run waits until it is built again"
            )

    def _note_use(self, record: RunRecord, lease: Lease, *, is_there: bool) -> None:
        if (plan := record.request.environment) is not None:
            self._environments.note_use(self._nodes_of(lease), plan, record.view.user, is_there=is_there)

    def _nodes_of(self, lease: Lease) -> list[Node]:
        found = (self._nodes.find(slot.node) for slot in lease.slots)
        return [node for node in found if node is not None]

    async def execute_start(self, record: RunRecord, lease: Lease) -> None:
        """The node gets its order while Ray makes the lease; the cell runs when both are there.

        Raises :class:`GpuReleaseError` when it came to nothing; then no node goes on with it.
        """
        try:
            try:
                await self._until_written(record, lease)
                folder = self._manifests.folder(record.view.user, record.run)
                grace_s = self._rules.file.tree.queues[record.view.queue].grace_s
                order = gangs.start_order(record, lease, self._nodes, folder, grace_s)
                if self._users is not None:
                    owner, as_owner = await self._users.find(record.view.user), self._users.are_owners
                    order = msgspec.structs.replace(order, owner=owner, as_owner=as_owner)
                if record.request.is_driver:
                    access = await self._let_driver_in(record.run, record.view.user)
                    order = msgspec.structs.replace(order, access=access)
                self._check_built(record, lease)
                ordered = await gangs.start(self._nodes, lease, order)
            finally:
                if not lease.gpu_ids:
                    await self._ray_leases.finish(lease)
            if order.gpu_ids is None:
                self._note_accelerators(record, lease)
            await gangs.accepted(ordered)
            self._note_use(record, lease, is_there=True)
            await gangs.grant(self._nodes, lease, order)
        except GpuReleaseError:
            self._note_use(record, lease, is_there=False)
            gangs.abandon(self._nodes, lease)
            raise
