"""Runs that wait for their environments: built where a run could start next, while it holds no GPU."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from ...errors import ClusterError, GpuReleaseError, RunFailedError
from ...host.background import BackgroundWork
from ...presentation.wording import describe_building, describe_environment
from ...protocol.environments import Plan
from ...scheduling.asks import to_run
from ...scheduling.plugins.node_filters import FILTERS
from ..cluster.environment_builds import EnvironmentBuilds
from ..cluster.lease import LeaseTable
from ..cluster.nodes import Node, NodeTable, scheduled_node
from ..runs import machine
from ..runs.attempts import blamed_hosts
from ..runs.live_runs import RunTable
from ..runs.record import Queued, RunRecord

log = logging.getLogger(__name__)
#: nodes that build an environment for one run at once; for a run of several nodes all of them do
_MOST_NODES = 3
#: without a word to the user, and between two words
_QUIET_S, _TOLD_S = 0.3, 1.0
#: between looks for free GPUs on nodes that lack the environment
_LOOK_S = 5.0


class EnvironmentWaits:
    """Queues each run that has an environment once a node has it; all on the gateway's event loop."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        leases: LeaseTable,
        builds: EnvironmentBuilds,
        queue: Callable[[RunRecord], None],
        tell_again: Callable[[RunRecord], None],
        hear: Callable[[RunRecord, machine.Event], None],
    ) -> None:
        """``queue`` takes a run that has its environment, ``tell_again`` one that may go to further nodes now.

        ``hear`` is told of a run whose environment cannot be built.
        """
        self._runs = runs
        self._nodes = nodes
        self._leases = leases
        self._builds = builds
        self._queue = queue
        self._tell_again = tell_again
        self._hear = hear
        self._spawn = BackgroundWork().spawn
        #: runs for which further nodes may build
        self._watched: set[str] = set()

    def begin(self, record: RunRecord, plan: Plan) -> None:
        """Queue a run now if a node has its environment, else when one has; have more nodes build it as it needs."""
        nodes, is_ready = self._where(record, plan)
        if is_ready or not nodes:
            self._queue(record)
            self._spawn(self._build_where_there_is_room(record, plan))
        else:
            self._spawn(self._queue_when_built(record, plan, nodes))

    async def until_built(self, record: RunRecord) -> None:
        """Return when a node has the environment of a run that was put back: those that had it may be gone."""
        plan = record.request.environment
        if plan is None:
            return
        nodes, is_ready = self._where(record, plan)
        if is_ready or not nodes or await self._has_built(record, plan, nodes, None):
            self._tell_again(record)
            self._spawn(self._build_where_there_is_room(record, plan))

    def _where(self, record: RunRecord, plan: Plan) -> tuple[list[Node], bool]:
        """Nodes that are to build it now, and whether the run could be queued without them."""
        ask = record.request.ask
        run = to_run(record.run, ask)
        building = self._builds.able()
        suiting = [node for node in building if not any(lacks(run, scheduled_node(node)) for lacks in FILTERS)]
        blamed = blamed_hosts(record.view)
        suiting = [node for node in suiting if node.host not in blamed] or suiting
        lacking = self._builds.lacking(suiting, plan)
        if run.nodes != 1:
            return lacking, not lacking
        having = [node for node in suiting if node not in lacking]
        if not having:
            return sorted(lacking, key=self._free, reverse=True)[:_MOST_NODES], False
        if any(self._free(node) >= ask.gpus for node in having):
            return [], True
        return [node for node in lacking if self._free(node) >= ask.gpus][:_MOST_NODES], True

    def _free(self, node: Node) -> float:
        return node.gpus - len(node.aside) - self._leases.held(node.node).gpus

    async def _queue_when_built(self, record: RunRecord, plan: Plan, nodes: list[Node]) -> None:
        if await self._has_built(record, plan, nodes, record.request.wait_s):
            self._queue(record)
            await self._build_where_there_is_room(record, plan)

    async def _has_built(self, record: RunRecord, plan: Plan, nodes: list[Node], wait_s: float | None) -> bool:
        """Return when these nodes have built it; False: the run has ended, here at the latest.

        Of runs that share a build the one that waited longest goes on first: nothing else is waited for.
        """
        building = asyncio.ensure_future(self._builds.build(nodes, plan, one_will_do=record.request.ask.nodes == 1))
        deadline_s = time.monotonic() + (wait_s if wait_s is not None else math.inf)
        self._spawn(self._tell_progress(record, plan, nodes, building, deadline_s))
        await asyncio.wait([building])
        if not isinstance(record.stage, Queued):
            return False
        if building.cancelled():
            late = RunFailedError("its environment was not built in time", hint="wait longer: --wait")
            self._hear(record, machine.Unstarted(late))
            return False
        if (failure := building.exception()) is not None:
            error = failure if isinstance(failure, GpuReleaseError) else _defect(failure)
            self._hear(record, machine.Unstarted(error))
            return False
        self._runs.change(record, built=describe_environment(plan, building.result()), reason="")
        return True

    async def _tell_progress(
        self, record: RunRecord, plan: Plan, nodes: list[Node], building: asyncio.Future[float], deadline_s: float
    ) -> None:
        """Say how far it is; one that nobody waits for any more, or not so long, is cancelled."""
        pause_s = _QUIET_S
        while not (await asyncio.wait([building], timeout=pause_s))[0]:
            if not isinstance(record.stage, Queued) or time.monotonic() > deadline_s:
                building.cancel()  # it ends where nobody else waits for it
                return
            reason = describe_building(plan, await self._builds.count_fetched(nodes, plan))
            if isinstance(record.stage, Queued) and not building.done() and record.view.reason != reason:
                self._runs.change(record, reason=reason)
            pause_s = min(_TOLD_S, max(0.0, deadline_s - time.monotonic()))

    async def _build_where_there_is_room(self, record: RunRecord, plan: Plan) -> None:
        """While nodes with the environment are busy and others have room, these build it: then the run may go there."""
        if record.run in self._watched:
            return
        self._watched.add(record.run)
        avoided = self._builds.nodes_without(plan)
        try:
            while isinstance(record.stage, Queued):
                nodes, _ = self._where(record, plan)
                if nodes:
                    await self._builds.build(nodes, plan)
                if (lacking := self._builds.nodes_without(plan)) != avoided:  # by this build, or for another run
                    avoided = lacking
                    self._tell_again(record)
                await asyncio.sleep(_LOOK_S)
        except ClusterError as error:  # it waits for the nodes that have it
            log.warning("run %s: %s", record.run, error.message)
        finally:
            self._watched.discard(record.run)


def _defect(error: BaseException) -> GpuReleaseError:
    return RunFailedError(
        f"its environment was not built: {error!r}", hint="write --environment cluster, and report it"
    )
