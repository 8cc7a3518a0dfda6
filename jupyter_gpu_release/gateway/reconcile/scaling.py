"""Nodes that somebody lends: asked for where runs wait for them, let go where nothing is to do.

A node with an actor on it is never idle for Ray. So the agent of a node that is spared is ended first, and it is made
again if somebody waits before the node is gone. An agent of another version than the gateway's
(that was upgraded) is ended when nothing runs there, and made again at once.
"""

from __future__ import annotations

import logging
import time

import ray

from ..._version import __version__
from ...errors import ClusterError
from ...scheduling.resource_requests import to_run
from ...scheduling.workload import Run
from ..cluster.node_source import NodeSource
from ..cluster.nodes import Node
from ..runs.machine import Warned, why_not_preempted
from ..service import GatewayService

log = logging.getLogger(__name__)
#: runs that are looked at: there are no more requests than half of these at a time
_MOST = 64


class Scaling:
    """Looks after the size of the cluster; one look at a time."""

    def __init__(self, service: GatewayService) -> None:
        self._service = service
        #: since when nodes have nothing to do (monotonic seconds)
        self._idle_since: dict[str, float] = {}
        #: nodes whose agent was made anew: one that has another version all the same stays as it is
        self._renewed: set[str] = set()
        #: runs that were told that their node is about to end
        self._warned: set[str] = set()

    async def look(self) -> None:
        """Ask for nodes, let idle ones go, wake those that somebody waits for; raises :class:`ClusterError`."""
        service, source = self._service, self._service.node_source
        lacking, waiting = self._who_waits() if source.scales else ([], set())
        if await source.look(lacking, waiting, self._idle_s(time.monotonic()) if source.scales else {}):
            service.nodes.note_leaving(source.leaving)
            service.lifecycle.queue.serve_soon()
        self._preempt_or_warn(source)
        if source.scales:
            self._wake(source)
            await self._let_idle_go(source)
        await self._renew_agents()

    def _who_waits(self) -> tuple[list[Run], set[str]]:
        """The first runs that lack a node, and all that wait: worked out only where it matters."""
        queue = self._service.lifecycle.queue
        lacking = [
            to_run(
                record.run,
                record.request.ask,
                submitted_at=record.view.submitted_at,
                limit_s=record.request.timeout_s,
                restartable=record.view.restartable and not record.view.stays,
            )
            for record in queue.lacking()[:_MOST]
        ]
        return lacking, {record.run for record in queue.waiting()}

    def _preempt_or_warn(self, source: NodeSource) -> None:
        """Preempt what is restartable on nodes that are about to end: it goes on elsewhere. Others are told."""
        warnings: dict[str, str] = {}
        for lease in self._service.leases.all() if source.leaving or self._warned else ():
            node = next((slot.node for slot in lease.slots if slot.node in source.leaving), "")
            record, found = self._service.runs.find(lease.run), self._service.nodes.find(node)
            if record is None or found is None:
                continue
            if why_not_preempted(record.snapshot) is not None:
                warnings[record.run] = source.why_leaving(found)
            elif record.view.notice is None:
                why = source.why_leaving(found, is_preempted=True)
                self._service.lifecycle.preempt(record, "request", why)
        for run in warnings.keys() | self._warned:
            record = self._service.runs.find(run)
            if record is not None:
                self._service.lifecycle.hear(record, Warned(warnings.get(run, "")))
        self._warned = set(warnings)

    def _wake(self, source: NodeSource) -> None:
        """Have the next look at the nodes make agents again, where somebody waits."""
        for node in self._service.nodes.alive() if self._service.lifecycle.queue.has_waiting else ():
            node.is_asleep = node.is_asleep and node.node in source.leaving

    def _idle_s(self, now_s: float) -> dict[str, float]:
        idle = [node.node for node in self._service.nodes.alive() if self._may_sleep(node)]
        self._idle_since = {node: self._idle_since.get(node, now_s) for node in idle}
        return {node: now_s - since_s for node, since_s in self._idle_since.items()}

    async def _let_idle_go(self, source: NodeSource) -> None:
        for name in source.spare:
            node = self._service.nodes.find(name)
            why = "has nothing to do: its agent is ended, and the node may go"
            if node is not None and self._may_sleep(node) and await self._end_agent(node, why):
                await source.give_back(node)

    async def _renew_agents(self) -> None:
        """End idle agents of another version; the next look at the nodes makes new ones."""
        for node in self._service.nodes.alive():
            if node.info is None or node.info.version in ("", __version__) or node.node in self._renewed:
                continue
            why = f"has an agent of version {node.info.version}: it is made anew"
            if self._is_idle(node) and await self._end_agent(node, why):
                self._renewed.add(node.node)
                node.is_asleep, node.info = False, None

    def _may_sleep(self, node: Node) -> bool:
        return not node.is_head and self._is_idle(node)

    def _is_idle(self, node: Node) -> bool:
        held = any(slot.node == node.node for lease in self._service.leases.all() for slot in lease.slots)
        is_busy = held or self._service.environments.is_building(node.node)
        return not (is_busy or node.is_asleep or node.agent is None or node.info is None)

    async def _end_agent(self, node: Node, why: str) -> bool:
        """End the agent of a node, if nothing runs there or is being written."""
        node.is_asleep = True  # first: nobody is to be granted anything there meanwhile
        try:
            busy = bool(await self._service.nodes.agent(node.node).runs())
        except ClusterError:
            busy = True
        if busy or not node.is_asleep:
            node.is_asleep = False
            return False
        log.info("node %s (%s) %s", node.host, node.node[:8], why)
        agent, node.agent, node.reachable = node.agent, None, False
        ray.kill(agent, no_restart=True)
        self._idle_since.pop(node.node, None)
        self._service.status_feed.note_change()
        return True
