"""The next calls of one function, assigned ahead to its process.

Their node begins each in the first of these processes that is left, and tells. Until then it waits in the queue as all
others do; to be cancelled, or granted other GPUs, it must be given back by its node first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ...errors import ClusterError, GpuReleaseError
from ...protocol.node import RunStartedAhead, StartOrder
from ..cluster.lease import Lease, LeaseTable
from ..cluster.nodes import NodeTable
from ..runs.live_runs import RunTable
from ..runs.manifests import Manifests
from ..runs.record import PHASES, RunRecord
from . import gangs
from .queue import RunQueue

log = logging.getLogger(__name__)
#: changes close together make one decision and one word to the node
_SOON_S = 0.01


class CallPipeline:
    """Promises of what the policy would grant if all processes of the function were left now."""

    def __init__(
        self, queue: RunQueue, runs: RunTable, leases: LeaseTable, nodes: NodeTable, manifests: Manifests,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:  # fmt: skip
        self._queue = queue
        self._runs = runs
        self._leases = leases
        self._nodes = nodes
        self._manifests = manifests
        self._spawn = spawn
        #: by run, the node to which it is promised, and the life of its agent
        self._given_to: dict[str, tuple[str, str]] = {}
        self._giving: dict[str, asyncio.Task[None]] = {}
        self._withdrawing: dict[str, asyncio.Task[None]] = {}
        self._due: asyncio.TimerHandle | None = None
        #: takes in what a node has begun, the sooner of two times
        self.on_begun: Callable[[RunStartedAhead], None]
        #: ends one that was cancelled, now that it is given back
        self.on_cancelled: Callable[[RunRecord], None]
        #: an agent of a node is dead, since another one lives
        self.on_dead: Callable[[str, str], object]
        queue.is_promised, queue.on_served = self._given_to.__contains__, self.renew_soon
        queue.on_promised = lambda record: self._withdraw([record])

    # ---------------------------------------------------------------------------------------- promise
    def renew_soon(self) -> None:
        """Something has changed that may change who is next."""
        if self._due is None and (self._given_to or any(map(self._is_open, self._leases.all()))):
            self._due = asyncio.get_running_loop().call_later(_SOON_S, self._renew)

    def _renew(self) -> None:
        self._due = None
        due: set[str] = set()
        for series, leases in self._open_leases().items():
            followers = self._queue.followers(leases, series)
            due |= {record.run for record, _ in followers}
            new: dict[str, list[RunRecord]] = {}
            for record, node in followers:
                if record.run not in self._given_to:
                    new.setdefault(node, []).append(record)
            for node, records in new.items():
                self._give(next(lease for lease in leases if lease.slots[0].node == node), records)
        given = [self._runs.get(run) for run in self._given_to if run not in due]
        self._withdraw(record for record in given if record is not None)

    def _open_leases(self) -> dict[str, list[Lease]]:
        """Leases whose calls are followed, by function."""
        found: dict[str, list[Lease]] = {}
        for lease in self._leases.all():
            record = self._runs.get(lease.run)
            if record is not None and self._is_open(lease):
                found.setdefault(record.series, []).append(lease)
        return found

    def _is_open(self, lease: Lease) -> bool:
        record = self._runs.get(lease.run)
        return (
            record is not None and record.is_followed and bool(lease.gpu_ids)
            and record.accepted and record.phase < PHASES["released"] and not record.interrupts
        )  # fmt: skip

    def _give(self, lease: Lease, records: list[RunRecord]) -> None:
        node, life = lease.slots[0].node, lease.incarnation
        for record in records:
            record.is_followed = self._queue.has_more_of(record)
            self._given_to[record.run] = node, life
        task = self._spawn(self._give_now(node, lease, records))
        self._giving.update((record.run, task) for record in records)

    async def _give_now(self, node: str, lease: Lease, records: list[RunRecord]) -> None:
        try:
            orders = [order for record in records if (order := await self._order(record, lease)) is not None]
            orders = [order for order in orders if order.run in self._given_to]
            life = await self._nodes.promise(node, orders) if orders else ""
            self._given_to.update((order.run, (node, life)) for order in orders if order.run in self._given_to)
        except ClusterError as error:  # whether it heard of them is unknown: it is asked before they go elsewhere
            log.warning("%s", error.message)
        finally:
            for record in records:
                self._giving.pop(record.run, None)

    async def _order(self, record: RunRecord, lease: Lease) -> StartOrder | None:
        try:
            await self._manifests.create_folder(record.run)
            if record.committed is not None:
                await record.committed
        except GpuReleaseError:  # the same happens, and is told, when it is granted
            self._given_to.pop(record.run, None)
            return None
        return gangs.start_order(record, lease, self._nodes, self._manifests.folder(record.run), promised=True)

    # --------------------------------------------------------------------------------------- withdraw
    def _withdraw(self, records: Iterable[RunRecord]) -> None:
        by_node: dict[str, list[str]] = {}
        for record in records:
            if record.run not in self._withdrawing:
                by_node.setdefault(self._given_to[record.run][0], []).append(record.run)
        for node, runs in by_node.items():
            task = self._spawn(self._withdraw_from(node, runs))
            self._withdrawing.update((run, task) for run in runs)

    async def _withdraw_from(self, node: str, runs: list[str]) -> None:
        try:
            if given := {self._giving[run] for run in runs if run in self._giving}:
                await asyncio.wait(given)
            answering, begun = await self._nodes.withdraw(node, runs)
        except ClusterError as error:  # they are the node's until it answers, or is gone
            log.warning("%s", error.message)
        else:
            for message in begun:
                self.on_begun(message)
            going = {message.run for message in begun}  # also where what they follow has not been heard of yet
            for run in runs:
                if run not in going and self._given_to.get(run, ("", answering))[1] == answering:
                    self._take_back(run)
            if any(run in self._given_to for run in runs if run not in going):  # it is an agent's that has died
                self.on_dead(node, answering)
            self._queue.serve()
        finally:
            for run in runs:
                self._withdrawing.pop(run, None)

    def _take_back(self, run: str) -> None:
        record = self._runs.get(run)
        if self._given_to.pop(run, None) and record is not None and record.cancelled and run in self._queue:
            self.on_cancelled(record)

    async def take_all_back(self, node: str) -> None:
        """A node that takes no runs just now is to begin none by itself, whoever promised it.

        Raises :class:`ClusterError` when its agent does not answer.
        """
        given = [run for run, (where, _) in self._given_to.items() if where == node]
        self._withdraw(record for run in given if (record := self._runs.get(run)) is not None)
        if withdrawing := {self._withdrawing[run] for run in given if run in self._withdrawing}:
            await asyncio.wait(withdrawing)
        await self._nodes.withdraw(node, None)

    async def is_given_back(self, record: RunRecord) -> bool:
        """Take a promise back, if there is one; False when its node has begun it, or does not answer."""
        while record.run in self._given_to:
            self._withdraw([record])
            await asyncio.wait({self._withdrawing[record.run]})
            if record.run in self._given_to:
                return False
        return record.run in self._queue

    # ------------------------------------------------------------------------------------------ begun
    def begun(self, record: RunRecord) -> str:
        """A node has begun a call: it waits no longer. Returns which node."""
        node, _ = self._given_to.pop(record.run, ("", ""))
        self._queue.remove(record)
        self.renew_soon()
        return node

    async def forget(self, node: str, living: str = "") -> list[RunRecord]:
        """A node or its agent is gone: what was promised to any but the ``living`` one waits again.

        Not so the runs that are returned: they may have begun, without a word of it having come here.
        """
        if giving := {task for run, task in self._giving.items() if self._given_to.get(run, ("", ""))[0] == node}:
            await asyncio.wait(giving)  # the living one may be who hears of them
        runs = [run for run, (where, life) in self._given_to.items() if where == node and life != living]
        begun = [run for run in runs if await self._manifests.may_have_begun(run)]
        found: list[RunRecord] = []
        for run in runs:
            record = self._runs.get(run)
            if run in begun and run in self._given_to and record is not None and run in self._queue:
                self._queue.remove(record)  # nobody grants it in between
                del self._given_to[run]
                found.append(record)
            self._take_back(run)
        return found


class LeaseHandover:
    """Asks the queue; a process that nobody takes is gone before its GPUs are anybody else's."""

    def __init__(
        self, queue: RunQueue, runs: RunTable, leases: LeaseTable, nodes: NodeTable, call_pipeline: CallPipeline
    ) -> None:
        self._queue = queue
        self._call_pipeline = call_pipeline
        self._runs = runs
        self._leases = leases
        self._nodes = nodes
        queue.on_wait = self._on_wait

    def look_ahead(self, record: RunRecord) -> None:
        """A call is about to begin: its process is to stay if another one waits already."""
        record.is_followed = self._queue.has_more_of(record)

    def look_again(self, record: RunRecord) -> None:
        """A call has begun with what was known a moment ago."""
        if not record.is_followed and self._queue.has_more_of(record):
            self._ask_to_stay(record)

    def _on_wait(self, waiting: RunRecord) -> None:
        """Calls that were granted while nobody waited hear of the first one that does."""
        series = waiting.series
        for lease in self._leases.all() if series else ():
            record = self._runs.get(lease.run)
            if record is not None and not record.is_followed and record.series == series:
                self._ask_to_stay(record)

    def _ask_to_stay(self, record: RunRecord) -> None:
        record.is_followed = True
        if record.lease is not None and record.phase < PHASES["ended"]:
            self._nodes.ask_to_stay(record.lease.slots[0].node, record.run)

    async def next_on(self, lease: Lease, ended: RunRecord) -> RunRecord | None:
        """The run that wants exactly these slots, out of the queue; its ``after`` says whose process it takes."""
        stays = ended.run if ended.stays else ""
        while (found := self._queue.successor(lease)) is not None:
            if self._queue.is_promised(found.run):
                if not await self._call_pipeline.is_given_back(found) and found.run in self._queue:
                    break  # its node does not answer
            elif stays and found.series != ended.series:
                await self.let_go(stays, lease)
                stays = ""
            else:
                found.after = stays
                self._queue.remove(found)
                return found
        await self.let_go(stays, lease)
        return None

    def taken_over(self, message: RunStartedAhead) -> Lease | None:
        """The lease of the run ``after``, for the one that its node has begun there; None when it holds none."""
        before = self._runs.get(message.after)
        if before is None or before.lease is None:
            return None
        lease, before.lease, before.handed_at = before.lease.handed_to(message.run), None, message.at_s
        lease.gpu_ids = lease.gpu_ids or (tuple(message.gpu_ids),)  # Ray's word of them may still be on its way
        return self._leases.add(lease)

    async def let_go(self, run: str, lease: Lease) -> None:
        """Nothing follows ``run`` in its process: return when that is gone (with its agent at the latest)."""
        if run:
            with contextlib.suppress(ClusterError):
                await self._nodes.call(lease.slots[0].node, "let_go", run)
