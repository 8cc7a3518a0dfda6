"""The scheduler itself in the replay: with the queues of a file, or with the one queue that there is without."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from ..errors import OptionError
from ..scheduling.decisions import Preempt, Start
from ..scheduling.learned_run_times import LearnedRunTimes, OrderSettings
from ..scheduling.queues.queues_file import QueuesFile, priority_value
from ..scheduling.schedule import decide_on
from ..scheduling.state import ClusterSnapshot, State
from ..scheduling.workload import Needs, Node, Rank, Run, in_thousandths
from .cluster import FreeGpus, is_of_type
from .replay import Begin, SimulatedPolicy
from .trace import Job


class Configured(SimulatedPolicy):
    """Queues, shares, priorities and backfill as configured. GPUs of one type are one pool.

    ``restartable``: part of the jobs, drawn by their number, that are preempted where a queue reclaims its share or a
    run of higher priority needs their GPUs; the others keep theirs to the end.
    """

    def __init__(
        self,
        free: FreeGpus,
        file: QueuesFile | None = None,
        settings: OrderSettings | None = None,
        restartable: float = 0.0,
        nodes: Sequence[Node] = (),
    ) -> None:
        super().__init__(free)
        self._restartable = restartable
        self.may_stop = restartable > 0
        self._file = file = file or QueuesFile()
        self.run_times = LearnedRunTimes(int(free.total), settings)
        pools = (Node(_name(gpu_type), in_thousandths(gpus), gpu_type) for gpu_type, gpus in free.pools())
        self._nodes = nodes = file.shared(nodes or pools)
        self._types = {node.name: node.gpu_type for node in nodes}
        queues = tuple(file.tree.queues.values())
        self._state = State(ClusterSnapshot(tuple(nodes), queues, (), file.policy), self.run_times)
        self._jobs: dict[str, Job] = {}
        self._waiting = 0

    def submit(self, job: Job, now_s: float) -> None:
        """Queue it where the file wants it: in its own queue, else in its user's."""
        queue, (ranks, gpus_per_rank) = self._queue(job), self._ranks(job)
        campaign = self.run_times.submitted(str(job.index), job.user, job.gpus, job.gpu_type, now_s, job.task)
        run = Run(
            run=str(job.index),
            queue=queue,
            ranks=(Rank(),) * ranks,
            gpus_per_rank=gpus_per_rank,
            min_ranks=ranks,
            priority=self._priority(job, queue),
            user=job.user,
            submitted_at=now_s,
            campaign=campaign,
            needs=Needs(gpu_type=job.gpu_type),
            restartable=_drawn(job.index) < self._restartable,
        )
        self._jobs[run.run] = job
        self._waiting += 1
        self._state.submit(run)

    def _ranks(self, job: Job) -> tuple[int, int]:
        """Ranks of a job, and GPUs of each (thousandths): one, as GPUs of one type are one node."""
        return 1, in_thousandths(job.gpus)

    def _queue(self, job: Job) -> str:
        named = job.queue if job.queue in self._file.tree.leaves() else None
        try:
            if job.gpus < 1:
                self._check_part(job)
            return self._file.queue_for(job.user, named)
        except OptionError as error:
            raise OptionError(f"row {job.row} of the trace: {error.message}", hint=error.hint) from error

    def _check_part(self, job: Job) -> None:
        self._file.check_sharing(job.user, f"{job.gpus:g} GPUs", job.gpus)
        if not any(node.parts_per_gpu and is_of_type(job.gpu_type, node.gpu_type) for node in self._nodes):
            raise OptionError(
                f"{job.gpus:g} GPUs: GPUs of type {job.gpu_type or 'any'} are not shared", hint="gpu_sharing.types"
            )

    def _priority(self, job: Job, queue: str) -> int:
        """The priority of a job, at most what its queue allows."""
        value = priority_value((job.priority or "normal").partition(".")[0], "priority")
        return min(value, *(self._file.tree.queues[name].priority_ceiling for name in self._file.tree.paths[queue]))

    def end(self, job: Job, now_s: float) -> None:
        """Take it out, and learn how long it took."""
        del self._jobs[str(job.index)]
        self._state.end(str(job.index))
        self.run_times.ended(str(job.index), now_s)

    def start(self, now_s: float, begin: Begin) -> None:
        """Carry out passes; another one where an overdue run has started, because the next may be overdue as well, and
        one for those that were preempted.
        """
        again, has_preempted = True, False
        while again and self._waiting and (self.free.total or self.may_stop):
            overdue, decided = self.run_times.overdue(now_s), decide_on(self._state, now_s)
            preempts = [decision for decision in decided if isinstance(decision, Preempt)]
            starts = [decision for decision in decided if isinstance(decision, Start)]
            for each in preempts:
                self._preempt(each.run)
            for start in starts:
                self._carry_out(start, now_s, begin)
            again = any(start.run in overdue for start in starts) or (bool(preempts) and not has_preempted)
            has_preempted |= bool(preempts)

    def _preempt(self, name: str) -> None:
        """Have a run wait again in its old place: in virtual time its GPUs are free at once."""
        run = self._state.jobs[name].run
        self._state.end(name)
        self._state.submit(run)
        self.run_times.put_back(name)
        self.stop(self._jobs[name].index)
        self._waiting += 1

    def _carry_out(self, start: Start, now_s: float, begin: Begin) -> None:
        job = self._jobs[start.run]
        if not begin(replace(job, gpu_type=self._types[start.ranks[0][1]])):
            raise RuntimeError(f"job {job.index} does not fit where it was placed")
        self._state.start(start.run, start.ranks, now_s)
        self._waiting -= 1
        self.run_times.started(start.run, now_s)


def _drawn(index: int) -> float:
    """A number from 0 to 1 for a job, the same in each replay."""
    return zlib.crc32(str(index).encode()) / 2**32


def _name(gpu_type: str) -> str:
    return gpu_type or "gpus"
