"""Nodes of a Ray cluster that scales by itself: asked for where runs wait for them, let go where nothing is to do.

A node with an actor on it is never idle for Ray. So where Ray ends idle nodes, the agent of a node that holds no lease
for some time is ended, too; it is made again as soon as somebody waits. An agent of another version than the gateway's
(that was upgraded) is ended when nothing runs there, and made again at once.
"""

from __future__ import annotations

import logging
import time

import ray

from ..._version import __version__
from ...errors import ClusterError
from ...scheduling.asks import to_run
from ...scheduling.workload import Run
from ..cluster.nodes import Node
from ..service import GatewayService

log = logging.getLogger(__name__)
#: runs that are looked at: there are no more requests than half of these at a time
_MOST = 64


class Scaling:
    """Looks after the size of the cluster; one look at a time."""

    def __init__(self, service: GatewayService, idle_s: float) -> None:
        self._service = service
        self._idle_s = idle_s
        #: since when nodes have nothing to do (monotonic seconds)
        self._idle_since: dict[str, float] = {}
        #: nodes whose agent was made anew: one that has another version all the same stays as it is
        self._renewed: set[str] = set()

    async def look(self) -> None:
        """Ask for nodes, let idle ones go, wake those that somebody waits for; raises :class:`ClusterError`."""
        service, demand = self._service, self._service.node_demand
        lacking, waiting = self._who_waits() if demand.scales else ([], set())
        if await demand.look(lacking, waiting):
            service.nodes.note_leaving(demand.report.draining)
            service.lifecycle.queue.serve_soon()
        if demand.scales:
            await self._let_idle_go(time.monotonic())
        await self._renew_agents()

    def _who_waits(self) -> tuple[list[Run], set[str]]:
        """The first runs that lack a node, and all that wait: worked out only where it matters."""
        queue = self._service.lifecycle.queue
        lacking = [
            to_run(record.run, record.request.ask, submitted_at=record.view.submitted_at)
            for record in queue.lacking()[:_MOST]
        ]
        return lacking, {record.run for record in queue.waiting()}

    async def _let_idle_go(self, now_s: float) -> None:
        nodes = self._service.nodes.alive()
        if self._service.lifecycle.queue.has_waiting:
            self._idle_since.clear()
            for node in nodes:
                node.is_asleep = False  # the next look at the nodes makes its agent
            return
        idle = [node for node in nodes if self._may_sleep(node)]
        self._idle_since = {node.node: self._idle_since.get(node.node, now_s) for node in idle}
        for node in idle:
            if now_s - self._idle_since[node.node] >= self._idle_s:
                await self._end_agent(node, "has nothing to do: its agent is ended, so that Ray may end it")

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
        return not (held or node.is_asleep or node.agent is None or node.info is None)

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
