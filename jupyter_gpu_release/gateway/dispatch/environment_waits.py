"""Runs that wait for their environments: built where a run could start next, while it holds no GPU."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ...errors import ClusterError, GpuReleaseError, RunFailedError
from ...host.background import BackgroundWork
from ...presentation.wording import describe_building, describe_environment
from ...protocol.environments import BuildReport, Plan
from ...scheduling import workload as scheduling
from ...scheduling.placement import suits
from ...scheduling.plugins.node_filters import ranks_on
from ...scheduling.resource_requests import to_run
from ..cluster.environment_builds import EnvironmentBuilds
from ..cluster.lease import LeaseTable
from ..cluster.nodes import Node, NodeTable, away_reason, scheduled_node
from ..runs import machine
from ..runs.attempts import blamed_hosts
from ..runs.live_runs import RunTable
from ..runs.record import Queued, RunRecord

log = logging.getLogger(__name__)
#: nodes that build an environment at once for a run on one node
_MOST_NODES = 3
#: without a word to the user, and between two words
_QUIET_S, _TOLD_S = 0.3, 1.0
#: between looks for free GPUs on nodes that lack the environment
_LOOK_S = 5.0


@dataclass(eq=False)
class _Wait:
    """A run and what it waits for. ``failed``: (node, life of its agent) → why it could not build it: it is not asked
    again for this run.
    """

    record: RunRecord
    plan: Plan
    failed: dict[tuple[str, str], ClusterError] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        return isinstance(self.record.stage, Queued)

    @property
    def user(self) -> str:
        return self.record.view.user

    @property
    def run(self) -> scheduling.Run:
        return to_run(self.record.run, self.record.request.ask)


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
        #: set, and another one from then on, when a node comes
        self._came = asyncio.Event()

    def on_node_up(self) -> None:
        """Further runs may have room there: it is looked now."""
        self._came.set()
        self._came = asyncio.Event()

    def begin(self, record: RunRecord, plan: Plan) -> None:
        """Queue a run now if nodes have its environment, else when they have; have more nodes build it as it needs."""
        wait = _Wait(record, plan)
        if self._where(wait)[1]:
            self._queue(record)
            self._spawn(self._build_where_there_is_room(wait))
        else:
            self._spawn(self._queue_when_built(wait))

    async def until_built(self, record: RunRecord) -> None:
        """Return when nodes have the environment of a run that was put back: those that had it may be gone."""
        if record.request.environment is None:
            return
        wait = _Wait(record, record.request.environment)
        if await self._is_built(wait, None):
            self._tell_again(record)
            self._spawn(self._build_where_there_is_room(wait))

    async def _queue_when_built(self, wait: _Wait) -> None:
        if await self._is_built(wait, wait.record.request.wait_s):
            self._queue(wait.record)
            await self._build_where_there_is_room(wait)

    # --------------------------------------------------------------------------------------------- where
    def _where(self, wait: _Wait) -> tuple[list[Node], bool]:
        """Nodes that are to build it now, and whether the run could be queued without them."""
        run = wait.run
        suiting = [node for node in self._builds.able() if suits(run, scheduled_node(node))]
        blamed = blamed_hosts(wait.record.view)
        suiting = [node for node in suiting if node.host not in blamed] or suiting
        lacking = self._builds.lacking(suiting, wait.plan, wait.user)
        having = [node for node in suiting if node not in lacking]
        if _share(run, map(self._as_free, having)) >= len(run.ranks):
            return [], True
        lacking = [node for node in lacking if _key(node) not in wait.failed and not away_reason(node)]
        lacking.sort(key=self._free, reverse=True)
        nodes = _enough(run, having, lacking, self._as_free)
        is_ready = _share(run, map(scheduled_node, having)) >= run.min_ranks
        return nodes if nodes or is_ready else _enough(run, having, lacking, scheduled_node), is_ready

    def _as_free(self, node: Node) -> scheduling.Node:
        """The node, were it as large as what is free on it."""
        gpus = 0 if away_reason(node) else int(self._free(node) * scheduling.GPU)
        cpus = node.cpus - self._leases.held(node.node).cpus
        return replace(scheduled_node(node), gpus=max(0, gpus), cpus=0 if away_reason(node) else max(0, cpus))

    def _free(self, node: Node) -> float:
        return node.gpus - len(node.aside) - self._leases.held(node.node).gpus

    def _fault(self, wait: _Wait) -> GpuReleaseError | None:
        """The reason why it can never start: of nodes that are up and large enough too few have the environment, or
        will.
        """
        run = wait.run
        up = [node for node in self._nodes.alive() if suits(run, scheduled_node(node))]
        cannot = {_key(node) for node in up if node.info is not None and not node.info.packages}
        cannot |= {_key(node) for node in self._builds.lacking(up, wait.plan, wait.user) if _key(node) in wait.failed}
        left = [node for node in up if _key(node) not in cannot or away_reason(node)]
        if not _share(run, map(scheduled_node, up)) >= run.min_ranks > _share(run, map(scheduled_node, left)):
            return None
        return next(reversed(wait.failed.values()), None) or ClusterError(
            "no node that could take the run builds environments",
            hint="`jupyter gpu doctor` says why of each node; `--environment cluster` needs none",
        )

    # -------------------------------------------------------------------------------------------- builds
    async def _is_built(self, wait: _Wait, wait_s: float | None) -> bool:
        """Return when nodes on which the run could start have built it, or there are none yet; False: it has ended."""
        deadline_s = time.monotonic() + (wait_s if wait_s is not None else math.inf)
        while wait.is_on:
            nodes, is_ready = self._where(wait)
            if is_ready or not nodes:
                return is_ready or not self._has_failed(wait)
            await self._build(wait, nodes, deadline_s)
        return False

    def _has_failed(self, wait: _Wait) -> bool:
        """Tell if no node is left that could build it: then the run has ended."""
        if (error := self._fault(wait)) is not None:
            self._hear(wait.record, machine.Unstarted(error))
        return error is not None

    async def _build(self, wait: _Wait, nodes: list[Node], deadline_s: float, *, is_further: bool = False) -> None:
        """Return when these nodes have built it, or failed, or the run has ended. ``is_further``: others have it.

        Of runs that share a build the one that waited longest goes on first: nothing else is waited for.
        """
        building = asyncio.ensure_future(self._builds.build(nodes, wait.plan, wait.user))
        self._spawn(self._tell_progress(wait, nodes, building, deadline_s))
        await asyncio.wait([building])
        if not wait.is_on:
            return
        if building.cancelled():
            late = RunFailedError("its environment was not built in time", hint="wait longer: --wait")
            self._hear(wait.record, machine.Unstarted(late))
        elif (defect := building.exception()) is not None:
            self._hear(wait.record, machine.Unstarted(_defect(defect)))
        else:
            self._note_failures(wait, nodes, building.result())
            built = [report.seconds for report in building.result() if not report.problem]
            if built and not is_further:
                reason = wait.record.view.reason if wait.record.run in self._watched else ""
                self._runs.change(wait.record, built=describe_environment(wait.plan, max(built)), reason=reason)

    def _note_failures(self, wait: _Wait, nodes: list[Node], reports: list[BuildReport]) -> None:
        for node, report in zip(nodes, reports, strict=True):
            if report.problem and not away_reason(node):  # one that comes back is asked again
                log.warning("run %s: %s: %s", wait.record.run, node.host, report.problem)
                wait.failed[_key(node)] = ClusterError(f"{node.host}: {report.problem}", hint=report.hint)

    async def _tell_progress(
        self, wait: _Wait, nodes: list[Node], building: asyncio.Future[list[BuildReport]], deadline_s: float
    ) -> None:
        """Say how far it is; one that nobody waits for any more, or not so long, is cancelled.

        A run that is watched is in the queue, which says why it waits.
        """
        record, pause_s = wait.record, _QUIET_S
        while not (await asyncio.wait([building], timeout=pause_s))[0]:
            if not wait.is_on or time.monotonic() > deadline_s:
                building.cancel()  # it ends where nobody else waits for it
                return
            reason = describe_building(wait.plan, await self._builds.count_fetched(nodes, wait.plan))
            is_told = wait.is_on and not building.done() and record.run not in self._watched
            if is_told and record.view.reason != reason:
                self._runs.change(record, reason=reason)
            pause_s = min(_TOLD_S, max(0.0, deadline_s - time.monotonic()))

    async def _build_where_there_is_room(self, wait: _Wait) -> None:
        """While nodes with the environment are busy, or there are none, and others have room, these build it: then the
        run may go there.
        """
        record, known = wait.record, None
        if record.run in self._watched:
            return
        self._watched.add(record.run)
        try:
            while wait.is_on:
                came = self._came
                nodes, is_ready = self._where(wait)
                if nodes:
                    await self._build(wait, nodes, math.inf, is_further=is_ready)
                elif not is_ready and self._has_failed(wait):
                    break
                if (now := self._builds.known(wait.plan, wait.user)) != known:  # by this build, or for another run
                    known = now
                    self._tell_again(record)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(came.wait(), _LOOK_S)
        finally:
            self._watched.discard(record.run)


def _key(node: Node) -> tuple[str, str]:
    return node.node, node.info.incarnation if node.info is not None else ""


def _share(run: scheduling.Run, nodes: Iterable[scheduling.Node]) -> int:
    """Ranks of the run that these nodes take together."""
    if run.nodes == "any":
        return sum(ranks_on(run, node) for node in nodes if suits(run, node))
    each = len(run.ranks) // run.nodes
    return sum(each for node in nodes if suits(run, node) and ranks_on(run, node) >= each)


def _enough(
    run: scheduling.Run, having: list[Node], lacking: list[Node], seen: Callable[[Node], scheduling.Node]
) -> list[Node]:
    """Those of the lacking nodes that are to build it so that all ranks fit, a few for a run on one node; none where
    they are too few.
    """
    shares = {node.node: _share(run, [seen(node)]) for node in lacking}
    taking = [node for node in lacking if shares[node.node]]
    if run.nodes == 1:
        return taking[:_MOST_NODES]
    found, ranks = [], _share(run, map(seen, having))
    for node in taking:
        if ranks >= len(run.ranks):
            break
        found.append(node)
        ranks += shares[node.node]
    return found if ranks >= run.min_ranks else []


def _defect(error: BaseException) -> GpuReleaseError:
    return RunFailedError(
        f"its environment was not built: {error!r}", hint="write --environment cluster, and report it"
    )
