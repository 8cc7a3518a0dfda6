"""Compares what the gateway believes with Ray and the nodes, every few seconds: what nobody thought of is mended.

Leases without a living run, runs without a living process, processes without a run, placement groups without a lease.
Each finding is a fault of somebody's, so it is an error in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from ...errors import ClusterError
from ...protocol.node import NodeRun, RunPhase
from ...protocol.states import LeaseState, RunState
from ..cluster.lease import Lease
from ..cluster.nodes import Node
from ..runs.machine import CaughtUp, Lost
from ..runs.record import RunRecord
from ..service import GatewayService

log = logging.getLogger(__name__)
#: looks between two in which the nodes are asked
_NODES_EVERY = 5
#: what is so for this many intervals is no step of something that is under way
_SURE_INTERVALS = 3


#: what is done about a finding
Repair = Callable[[], object]


class Reconciliation:
    """Compares what the gateway believes with Ray and nodes; one look at a time."""

    def __init__(self, service: GatewayService) -> None:
        self._service = service
        self._sure_s = _SURE_INTERVALS * service.config.reconcile_interval_s
        #: since when each finding is so
        self._since: dict[str, float] = {}
        self._looks = 0
        #: runs that their nodes did not know when they were asked last
        self._unknown: set[str] = set()
        #: phases of runs that their nodes had reached, and we had not heard of
        self._ahead: dict[str, str] = {}

    async def compare_once(self) -> None:
        """One comparison; raises :class:`ClusterError` when Ray does not answer."""
        await end_strangers(self._service)
        self._mend(self._leases_of_nobody(), time.monotonic())
        self._looks += 1
        if self._looks % _NODES_EVERY == 0:
            asked = [self._compare(node) for node in self._service.nodes.ready() if node.reachable]
            self._unknown = set().union(*await asyncio.gather(*asked))
            self._ahead = {run: phase for run, phase in self._ahead.items() if self._service.runs.get(run) is not None}

    def _mend(self, found: dict[str, Repair], now_s: float) -> None:
        self._since = {what: self._since.get(what, now_s) for what in found}
        for what, mend in found.items():
            if now_s - self._since[what] >= self._sure_s:
                log.error("reconciliation: %s", what)
                del self._since[what]
                mend()

    # ----------------------------------------------------------------------------------- our own tables
    def _leases_of_nobody(self) -> dict[str, Repair]:
        return {
            f"lease {lease.name} has no living run: it is given back": partial(self._free, lease)
            for lease in self._service.leases.all()
            if not self._is_owned(lease)
        }

    def _is_owned(self, lease: Lease) -> bool:
        if lease in self._service.lifecycle.releaser.freeing:
            return True
        if lease.state is LeaseState.WARM and lease.kept is not None:
            return True
        record = self._service.runs.get(lease.run)
        if record is None or record.state.is_terminal:
            return False
        return record.lease is lease

    def _free(self, lease: Lease) -> None:
        self._service.lifecycle.spawn(self._service.lifecycle.free_and_serve(lease))

    # -------------------------------------------------------------------------------------- the nodes
    async def _compare(self, node: Node) -> set[str]:
        """End what the node runs for nobody; returns our runs that it does not know, after the second time: lost."""
        expected = [record for record in self._service.runs.live() if self._is_at(record, node)]
        try:
            found = await self._service.nodes.agent(node.node).runs()
            await self._end_strays(node, found)
        except ClusterError as error:
            log.info("%s", error.message)
            return set()
        known = {run.attempt_id: run for run in found if run.is_granted}
        for record in expected:
            if (run := known.get(record.attempt_id)) is not None:
                self._catch_up(record, run)
        missing = [record for record in expected if record.attempt_id not in known and self._is_at(record, node)]
        for record in missing:
            if record.run in self._unknown:
                log.error("reconciliation: run %s has no process on %s: it is lost", record.run, node.host)
                why = f"the node {node.host} knows nothing of it any more"
                self._service.lifecycle.hear(record, Lost(record.attempt_id, why, node.host, ends=True))
        return {record.run for record in missing}

    def _catch_up(self, record: RunRecord, run: NodeRun) -> None:
        """A node that is ahead tells so itself, its events first; what it told an earlier gateway is not told again."""
        before = self._ahead.pop(record.run, "")
        if run.attempt_id != record.attempt_id or not record.snapshot.expects(run.phase):
            return
        if before != run.phase:
            self._ahead[record.run] = run.phase
            return
        log.error("reconciliation: run %s is %s on its node, and nobody was told", record.run, run.phase)
        record.tail.last = max(record.tail.last, run.last_event)
        record.tail.known = False  # its events are in its log
        message = RunPhase(run.attempt_id, run.phase, run.at_s, run.outcome)
        self._service.lifecycle.hear(record, CaughtUp(message))

    def _is_at(self, record: RunRecord, node: Node) -> bool:
        """Tell if the node must know the run: it has accepted it in its agent's present life, or keeps its results."""
        lease = record.lease
        if record.state is RunState.PERSISTING:
            return node.host in record.view.hosts[:1]
        return (
            lease is not None
            and lease.slots[0].node == node.node
            and record.accepted
            and record.outcome is None
            and node.info is not None
            and lease.incarnation == node.info.incarnation
        )

    async def _end_strays(self, node: Node, found: list[NodeRun]) -> None:
        """End what an agent runs for nobody, and have it forget what is over."""
        is_over = self._service.runs.is_over
        over = [run.attempt_id for run in found if run.phase == "final" and is_over(run.attempt_id)]
        self._service.end_unwanted(node.node, [run for run in found if run.attempt_id not in over])
        await self._service.nodes.agent(node.node).forget_runs(over)


async def end_strangers(service: GatewayService) -> None:
    """Remove placement groups without a lease: none may stay. Raises :class:`ClusterError` when Ray is silent."""
    groups = await service.ray_leases.groups()
    leased = {lease.name for lease in service.leases.all()}
    for name, group in groups.items():
        if name not in leased:
            log.warning("placement group %s belongs to no live run: removed", name)
            await service.ray_leases.remove_stranger(group)
