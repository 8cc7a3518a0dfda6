"""``NodeDemand``: has an autoscaling Ray cluster start the nodes that runs wait for."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...errors import ClusterError
from ...scheduling.decisions import LACKS_NODE, NodeWanted, Wait
from ...scheduling.workload import Run
from .autoscaler import AutoscalerReport, Request, list_requests, raise_request, read_autoscaler, withdraw_request
from .node_source import NodeSource
from .nodes import Node, NodeTable
from .ray_calls import RayCalls

log = logging.getLogger(__name__)
#: requests at a time: Ray looks at each of them every second
_MOST = 32
#: a cell that waits for another one of a few seconds needs no further node
_PATIENCE_S = 2.0
#: a run whose node has come has so long to get onto it, and as long again before it asks for another one
_SETTLING_S = 60.0
#: looks for an autoscaler where there was none, one in so many
_SELDOM = 20


class NodeDemand(NodeSource):
    """Requests of waiting runs for further nodes; :meth:`look` keeps Ray's in step with who waits.

    What Ray has been asked is read from Ray each time, so requests of an earlier life of the gateway go as well.
    """

    def __init__(self, calls: RayCalls, nodes: NodeTable, idle_agent_s: float) -> None:
        self._calls = calls
        self._nodes = nodes
        self._idle_agent_s = idle_agent_s
        self.report = AutoscalerReport()
        #: run → its group
        self._requests: dict[str, str] = {}
        #: runs for which nodes have come, and when (monotonic seconds)
        self._met_at: dict[str, float] = {}
        self._looks = 0

    def with_answer(self, wait: Wait) -> Wait:
        """The same wait, with what the autoscaler does about it."""
        group = self._requests.get(wait.run)
        if group is None or not isinstance(wait.cause, LACKS_NODE):
            return wait
        if group in self.report.refused:
            return replace(wait, cause=NodeWanted(wait.cause, "refused"))
        return replace(wait, cause=NodeWanted(wait.cause, "starting" if self.report.starting else "asked"))

    async def look(self, lacking: Sequence[Run], waiting: Collection[str], idle_s: Mapping[str, float]) -> bool:
        """Ask Ray, and spare what is idle while nobody waits: without an agent it is idle for Ray, too."""
        self._looks += 1
        if not self.scales and self._looks % _SELDOM != 1:
            return False
        before = self.report, dict(self._requests)
        self.report = await self._calls.ask(read_autoscaler)
        self.scales, self.leaving = self.report.scales, self.report.draining
        self.spare = tuple(node for node, idle in idle_s.items() if idle >= self._idle_agent_s and not waiting)
        if self.scales:
            await self._compare(self._wanted(lacking), waiting)
        return before != (self.report, self._requests)

    async def give_back(self, node: Node) -> None:
        """Ray ends it by itself when it was idle for so long as its autoscaler was told."""

    async def _compare(self, wanted: Mapping[str, Run], waiting: Collection[str]) -> None:
        now_s = time.monotonic()
        known = {request.run: request for request in await self._calls.ask(list_requests)}
        met = {run for run, request in known.items() if request.nodes}
        self._met_at = {run: at_s for run, at_s in self._met_at.items() if now_s - at_s < 2 * _SETTLING_S}
        self._met_at = {**dict.fromkeys(met, now_s), **self._met_at}
        for run, request in known.items():
            over = now_s - self._met_at[run] > _SETTLING_S if run in met else run not in wanted
            if over or run not in waiting or (run in met and all(map(self._is_ready, request.nodes))):
                await self._withdraw(request)
        for run in [run for run in wanted if run not in known and run not in self._met_at]:
            log.info("run %s waits for GPUs that no node has free: Ray is asked for a node", run)
            await self._calls.ask(partial(raise_request, wanted[run], [node.node for node in self._nodes.alive()]))
        left = await self._calls.ask(list_requests)
        self._requests = {request.run: request.group for request in left if request.run in wanted and not request.nodes}

    def _is_ready(self, name: str) -> bool:
        node = self._nodes.find(name)
        return node is None or not node.alive or (node.info is not None and node.reachable)

    def _wanted(self, waiting: Sequence[Run]) -> Mapping[str, Run]:
        before_s = time.time() - _PATIENCE_S
        return {run.run: run for run in [run for run in waiting if run.submitted_at <= before_s][:_MOST]}

    async def _withdraw(self, request: Request) -> None:
        try:
            await self._calls.ask(partial(withdraw_request, request))
        except ClusterError as error:  # at the next look
            log.warning("Ray is still asked for a node for run %s: %s", request.run, error.message)
