"""``SlurmNodes``: each node of the pool is one job of Slurm's, submitted when runs lack it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import ClusterError
from ...host.background import BackgroundWork
from ...host.slurm import JOB_LABEL, Slurm, job_name, job_script, log_path
from ...host.slurm_answers import SlurmJob
from ...protocol.config import GatewayConfig, SlurmPool
from ...scheduling.decisions import LACKS_NODE, NodeWanted, Wait
from ...scheduling.pool import Lent, PoolPlan, plan_pool, pool_of
from ...scheduling.workload import Node as Shape
from ...scheduling.workload import Run, in_thousandths
from .lease import LeaseTable
from .node_source import NodeSource
from .nodes import LAST_S, Node, NodeTable, coarse, is_expected, left_s, scheduled_node

log = logging.getLogger(__name__)
#: a cell that waits for another one of a few seconds needs no further node
_PATIENCE_S = 2.0
#: between two questions to Slurm while a job waits, and else
_OFTEN_S, _SELDOM_S = 3.0, 30.0
#: after Slurm has refused, or a job has ended without its node: doubled each time
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 15.0, 600.0
_LINES = 3
#: Slurm tells time that is left in whole seconds; more is another limit, by `scontrol update`
_OTHER_LIMIT_S = 5.0
#: Ray sees that a node is gone after its job has ended; clocks and rounding may make that sooner than its end
_LATE_S = 10.0
#: of a job's walltime, until its node takes runs
_BOOT_S = 60.0


class SlurmNodes(NodeSource):
    """Submits, withdraws and ends jobs as :func:`plan_pool` says.

    Slurm is asked in a thread, one question at a time, so a controller that is away holds up nobody. What it was asked
    is read from it each time, by the jobs' name: jobs of an earlier life of the gateway are found again.
    """

    scales = True

    def __init__(
        self,
        config: GatewayConfig,
        pool: SlurmPool,
        nodes: NodeTable,
        leases: LeaseTable,
        slurm: Slurm | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = pool
        self._home = Path(config.home)
        self._cluster = config.cluster
        self._name = job_name(config.cluster)
        self._slurm = slurm or Slurm()
        self._nodes = nodes
        self._leases = leases
        self._clock = clock
        self.gpus_most = pool.max_nodes * pool.gpus_per_node
        self._pool = pool_of(pool, coarse(pool.walltime_s - LAST_S - _BOOT_S))
        #: kinds of nodes that have come
        self._kinds: dict[object, Shape] = {}
        self._spawn = BackgroundWork().spawn
        self._work: asyncio.Task[None] | None = None
        self._plan = PoolPlan()
        self._wanted: list[Run] = []
        #: at the last look the agent of a node was not there yet
        self._some_start = False
        self._jobs: list[SlurmJob] = []
        self._asked_at_s = -math.inf
        #: when Slurm said what ``_jobs`` has; before that nobody knows what an earlier life has submitted
        self._heard_s = -math.inf
        #: nothing was submitted since that ``_jobs`` may lack
        self._is_sure = False
        #: Slurm has not said what there is when it was asked last
        self._is_silent = False
        #: Slurm has not taken it that jobs were to end
        self._cannot_end = False
        #: jobs that were told to end
        self._ended: set[str] = set()
        #: jobs that have had their node, and those that may still get it
        self._arrived: set[str] = set()
        self._expected: set[str] = set()
        #: nodes that Slurm's admins have drained, and why
        self._drained: dict[str, str] = {}
        #: why no job is submitted just now, and until when
        self._trouble = ""
        self._pause_s = 0.0
        self._rests_until_s = -math.inf
        self._told: object = None

    async def look(self, lacking: Sequence[Run], waiting: Collection[str], idle_s: Mapping[str, float]) -> bool:
        """Plan with what Slurm has said last, and have the plan carried out meanwhile."""
        there = {job: node for node in self._nodes.alive() if (job := node.labels.get(JOB_LABEL, ""))}
        listed = {job.job: job for job in self._jobs if job.is_there}
        if (new := there.keys() - self._arrived) - listed.keys():
            self._asked_at_s = -math.inf  # nobody knows yet when it ends
        self._arrived |= new
        self._ended |= (self._arrived & listed.keys()) - there.keys()  # the node has failed, whatever its job does
        for job in there.keys() & listed.keys():
            self._note_end(there[job], listed[job])
        going = {job for job, node in there.items() if job in self._ended or left_s(node) <= 0}
        self._drained = {there[job].node: listed[job].drained for job in there.keys() & listed if listed[job].drained}
        self.leaving = frozenset((*(there[job].node for job in going), *self._drained))
        stays = {job: node for job, node in there.items() if job not in going}
        before_s = time.time() - _PATIENCE_S
        kept = self._about_to_start(lacking, waiting, stays.values())
        self._wanted = [*kept, *(run for run in lacking if run.submitted_at <= before_s or not stays)]
        open_jobs = [job for job in self._jobs if job.job not in self._ended | there.keys()]
        self._learn(stays.values())
        self._plan = plan_pool(
            replace(self._pool, seen=tuple(self._kinds.values())),
            self._wanted,
            [self._lent(node, idle_s) for node in stays.values()],
            sum(job.is_there for job in open_jobs),
            [job.job for job in open_jobs if job.is_waiting],
        )
        over = (node.node for job, node in there.items() if job in going - self._ended and node.node in idle_s)
        self.spare = (*self._plan.give_back, *over)
        self._carry_out(is_news_due=bool(open_jobs) or not stays.keys() <= listed.keys())
        told = self.leaving, self._plan.asked, self._plan.refused, [job.words for job in open_jobs], self._trouble
        is_news, self._told = told != self._told, told
        return is_news

    def _about_to_start(self, lacking: Sequence[Run], waiting: Collection[str], nodes: Collection[Node]) -> list[Run]:
        """Runs for which a node has come whose agent still starts: they lack none, and keep those that they have.

        So do they in the look after it: the queue has not seen yet that it is there.
        """
        started, self._some_start = self._some_start, any(node.info is None or not node.reachable for node in nodes)
        if not (started or self._some_start):
            return []
        lack = {run.run for run in lacking}
        return [run for run in self._wanted if run.run in waiting and run.run not in lack]

    def _note_end(self, node: Node, job: SlurmJob) -> None:
        """By the time that is left: Slurm's clock may be another."""
        ends_s = self._heard_s + job.left_s
        if node.ends_s is None or abs(node.ends_s - ends_s) > _OTHER_LIMIT_S:
            node.ends_s = ends_s

    def _learn(self, nodes: Collection[Node]) -> None:
        """Note what nodes are that the pool's file does not describe: a run that needs another asks for none."""
        for node in nodes:
            if node.info is not None and not node.info.trouble:
                kind = scheduled_node(node)
                self._kinds.setdefault((kind.gpu_type, kind.gpu_memory_bytes, kind.memory_bytes), kind)

    def _lent(self, node: Node, idle_s: Mapping[str, float]) -> Lent:
        is_drained = node.node in self._drained
        return Lent(
            node.node,
            # whoever waits has found no room beside others on GPUs that are shared
            in_thousandths(node.gpus - self._leases.gpus_in_use(node.node)),
            node.cpus - self._leases.held(node.node).cpus,
            math.inf if is_drained and node.node in idle_s else idle_s.get(node.node),
            left_s(node),
            takes_runs=is_expected(node) and not is_drained,
            shape=scheduled_node(node) if node.info is not None else None,
        )

    def with_answer(self, wait: Wait) -> Wait:
        """Name the job that it waits for, or why there is none."""
        if not isinstance(wait.cause, LACKS_NODE):
            return wait
        if why := self._plan.refused.get(wait.run):
            return replace(wait, cause=NodeWanted(wait.cause, "refused", f"no node is asked of Slurm: {why}"))
        if wait.run not in self._plan.asked:
            return wait
        job = next((job for job in self._jobs if job.job not in self._arrived | self._ended), None)
        says = self._trouble or (job.words if job is not None else "Slurm is asked for one")
        return replace(wait, cause=NodeWanted(wait.cause, "asked", f"waiting for a node: {says}"))

    def why_leaving(self, node: Node, *, is_preempted: bool = False) -> str:
        """Name Slurm's reason."""
        if why := self._drained.get(node.node):
            then = "" if is_preempted else ": the run may end there, and the node then goes back"
            return f"its node is drained in Slurm ({why}){then}"
        if node.ends_s is None or node.labels.get(JOB_LABEL, "") in self._ended:
            return super().why_leaving(node, is_preempted=is_preempted)
        ends_at = time.localtime(time.time() + node.ends_s - time.monotonic())
        then = "" if is_preempted else ", and the run with it"
        return f"its node's Slurm job ends at {time.strftime('%H:%M', ends_at)}{then}"

    def why_gone(self, node: Node) -> str:
        """Name its job, and the walltime where that was over: Slurm forgets a job soon, its log says more."""
        gone, job = super().why_gone(node), node.labels.get(JOB_LABEL, "")
        if not job:
            return gone
        if node.ends_s is not None and node.ends_s - time.monotonic() <= _LATE_S:
            return f"{gone} with its Slurm job {job}, whose walltime is over"
        return f"{gone} with its Slurm job {job} (why: see log/{log_path(self._home, job).name})"

    async def give_back(self, node: Node) -> None:
        """Have Slurm end its job, at once unless it is being asked; until it has done so, the node gets no runs."""
        self._ended.add(node.labels.get(JOB_LABEL, ""))
        self.leaving |= {node.node}
        node.is_leaving = True
        self._asked_at_s = -math.inf
        if self._work is None:
            self._work = self._spawn(self._ask(0, ()))

    # ------------------------------------------------------------------------------------------- Slurm
    def _carry_out(self, *, is_news_due: bool) -> None:
        now_s, plan = self._clock(), self._plan
        rests = now_s < self._rests_until_s
        may_submit = not rests and self._is_sure
        is_wanted = bool(plan.withdraw) or (bool(plan.submit) and may_submit)
        changes = is_news_due or not self._is_sure or (self._ended and not self._cannot_end)
        poll_s = _OFTEN_S if changes and not rests else _SELDOM_S
        if self._work is None and (is_wanted or now_s - self._asked_at_s >= poll_s):
            self._work = self._spawn(self._ask(plan.submit if may_submit else 0, plan.withdraw))

    async def _ask(self, submit: int, withdraw: Sequence[str]) -> None:
        """Tell Slurm what is wanted, and hear what there is."""
        try:
            self._ended.update(withdraw)
            await self._end_jobs()
            self._is_sure = False
            for _ in range(submit):
                job = await asyncio.to_thread(self._submit)
                log.info("Slurm job %s is submitted: runs wait for a node", job)
                self._expected.add(job)
            if failed := self._hear(await self._listed()):
                self._rest(await asyncio.to_thread(self._why_it_ended, failed))
            self._is_sure = True
        except ClusterError as error:
            log.warning("Slurm: %s", error.message)
            self._rest(error.message)
        finally:
            self._asked_at_s, self._work = self._clock(), None

    async def _listed(self) -> list[SlurmJob]:
        self._is_silent, was_silent = True, self._is_silent
        jobs = await asyncio.to_thread(self._slurm.jobs, self._name)
        jobs = await asyncio.to_thread(self._slurm.with_drained, jobs)
        self._is_silent = False
        if was_silent:  # that was the trouble, and it is over
            self._rests_until_s = -math.inf
        return jobs

    async def _end_jobs(self) -> None:
        try:
            known = {job.job for job in self._jobs}
            await asyncio.to_thread(self._slurm.cancel, sorted(self._ended & known))
            self._cannot_end = False
        except ClusterError as error:  # what else is to be asked does not wait for it
            log.warning("Slurm: %s", error.message)
            self._cannot_end = True

    def _submit(self) -> str:
        script = job_script(self._home, self._cluster)
        return self._slurm.submit(self._settings, self._name, script, log_path(self._home, "%j"))

    def _hear(self, jobs: list[SlurmJob]) -> str:
        """Take in what there is; return a job that has ended before its node came."""
        listed, self._heard_s = {job.job for job in jobs}, self._clock()
        self._jobs = [job for job in jobs if job.is_waiting or job.is_there]
        failed = self._expected - listed - self._arrived - self._ended
        alive = {node.labels.get(JOB_LABEL, "") for node in self._nodes.alive()}  # Ray may be later than Slurm
        over = listed - {job.job for job in self._jobs}
        self._ended = (self._ended & (listed | alive)) | (over & alive)
        self._expected = (self._expected | {job.job for job in self._jobs}) & listed - self._arrived - self._ended
        if not failed and self._heard_s >= self._rests_until_s:
            self._trouble = ""
            self._pause_s = 0.0 if self._arrived & listed else self._pause_s
        return min(failed, default="")

    def _rest(self, why: str) -> None:
        """Submit nothing for a while."""
        self._trouble = why
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._rests_until_s = self._clock() + self._pause_s

    def _why_it_ended(self, job: str) -> str:
        path = log_path(self._home, job)
        try:
            lines = path.read_text(errors="replace").strip().splitlines()[-_LINES:]
        except OSError:
            return f"Slurm job {job} ended at once and left no {path}: do the compute nodes have that folder?"
        return f"Slurm job {job} ended at once: {' / '.join(lines) or 'its log is empty'}"
