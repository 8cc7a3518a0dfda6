"""The replay of a trace in virtual time."""

from __future__ import annotations

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .cluster import ClusterSpec, FreeGpus
from .trace import Job

#: a job that is preempted goes on from its last save: they are so far apart, and going on takes so long
SAVED_EVERY_S, GOES_ON_IN_S = 60.0, 30.0
Begin = Callable[[Job], bool]


class SimulatedPolicy(ABC):
    """Decides who starts. The replay calls it on one thread, in virtual time."""

    def __init__(self, free: FreeGpus) -> None:
        #: GPUs that are free now; the replay keeps it true
        self.free = free
        #: it may preempt running jobs, so it is asked while no GPU is free, too
        self.may_stop = False
        #: when it is to be asked next, though no job comes or ends before
        self.next_s = math.inf
        #: takes a running job's GPUs back; it may be begun again
        self.stop: Callable[[int], object] = self.free.give_back

    @abstractmethod
    def submit(self, job: Job, now_s: float) -> None:
        """Take a job into the queue."""

    def end(self, job: Job, now_s: float) -> None:  # noqa: B027 (not every policy wants to know)
        """Hear that a job has ended; its GPUs are free already."""

    @abstractmethod
    def start(self, now_s: float, begin: Begin) -> None:
        """Call ``begin`` for every job that starts now; it is False (and nothing happens) where GPUs are lacking.

        Called once for everything that happens in one instant.
        """

    def held_gpu_s(self, now_s: float) -> float | None:
        """GPU-seconds that are paid for until now; None: just those of the jobs."""
        return None


@dataclass(frozen=True)
class Replayed:
    """First starts of all jobs; ``jobs`` are by age, ``starts_s`` in the same order.

    ``attempts``: beginnings and ends of those that were preempted, by index.
    """

    jobs: Sequence[Job]
    starts_s: Sequence[float]
    gpus: int
    attempts: Mapping[int, Sequence[tuple[float, float]]] = field(default_factory=dict)
    #: GPU-seconds that were paid for, where the jobs' own are not all
    held_gpu_s: float | None = None

    def spans(self) -> list[Sequence[tuple[float, float]]]:
        """Beginnings and ends of each job's attempts."""
        pairs = zip(self.starts_s, self.jobs, strict=True)
        return [self.attempts.get(job.index) or ((start, start + job.duration_s),) for start, job in pairs]

    def waits_s(self) -> list[float]:
        """Seconds that each job waited, or did again."""
        return [self._wait_s(start, job) for start, job in zip(self.starts_s, self.jobs, strict=True)]

    def _wait_s(self, start_s: float, job: Job) -> float:
        if job.index not in self.attempts:
            return start_s - job.submit_s
        return self.attempts[job.index][-1][1] - job.submit_s - job.duration_s

    def held_over_used(self) -> float:
        """GPU-seconds that were paid for, divided by those of the jobs."""
        used = sum(job.gpus * job.duration_s for job in self.jobs)
        return self.held_gpu_s / used if self.held_gpu_s is not None and used else 1.0

    def work_lost(self) -> float:
        """Part of all work that was done again, or was time to go on."""
        work = sum(job.gpus * job.duration_s for job in self.jobs)
        done = sum(
            job.gpus * (sum(end_s - begin_s for begin_s, end_s in self.attempts[job.index]) - job.duration_s)
            for job in self.jobs
            if job.index in self.attempts
        )
        return done / work if work else 0.0


def replay(
    jobs: Sequence[Job],
    cluster: ClusterSpec,
    make_policy: Callable[[FreeGpus], SimulatedPolicy],
    progress: Callable[[int], None] = lambda started: None,
    following: Callable[[Job, float], Job | None] = lambda job, now_s: None,
) -> Replayed:
    """Play all jobs to their end. Every job must fit the empty cluster. ``progress`` hears how many have started.

    ``following`` is told of each job's end, and gives the job that is submitted only then or later, if there is one.
    """
    return _Replay(jobs, cluster, make_policy, progress, following).play()


class _Replay:
    def __init__(
        self,
        jobs: Sequence[Job],
        cluster: ClusterSpec,
        make_policy: Callable[[FreeGpus], SimulatedPolicy],
        progress: Callable[[int], None],
        following: Callable[[Job, float], Job | None],
    ) -> None:
        self._cluster, self._progress, self._following = cluster, progress, following
        self._numbers = itertools.count()
        #: jobs that are to come, the next first; and those that have, by age
        self._due = [(job.submit_s, next(self._numbers), job) for job in jobs]
        heapq.heapify(self._due)
        self._jobs: list[Job] = []
        self._free = FreeGpus(cluster)
        self._policy = make_policy(self._free)
        self._policy.stop = self._stop
        self._starts: dict[int, float] = {}
        #: end, index of the job; of one that was stopped it stays here, and counts for nothing
        self._ends: list[tuple[float, int]] = []
        #: running job → when it began, and when it ends
        self._running: dict[int, tuple[float, float]] = {}
        #: of jobs that were stopped: attempts, and how much of the duration is saved
        self._attempts: dict[int, list[tuple[float, float]]] = {}
        self._saved_s: dict[int, float] = {}
        self._now_s = 0.0

    def play(self) -> Replayed:
        """Go from instant to instant."""
        while self._due or self._ends or self._policy.next_s < math.inf:
            self._now_s = min([self._policy.next_s, *(queue[0][0] for queue in (self._due, self._ends) if queue)])
            self._end_jobs()
            while self._due and self._due[0][0] <= self._now_s:
                self._jobs.append(replace(heapq.heappop(self._due)[2], index=len(self._jobs)))
                self._policy.submit(self._jobs[-1], self._now_s)
            if self._free.total or self._policy.may_stop:
                self._policy.start(self._now_s, self._begin)
        starts = [self._starts[job.index] for job in self._jobs]
        held_gpu_s = self._policy.held_gpu_s(self._now_s)
        return Replayed(tuple(self._jobs), starts, self._cluster.gpus, self._attempts, held_gpu_s)

    def _end_jobs(self) -> None:
        while self._ends and self._ends[0][0] <= self._now_s:
            end_s, index = heapq.heappop(self._ends)
            if self._running.get(index, (0.0, -1.0))[1] != end_s:
                continue
            began_s, _ = self._running.pop(index)
            if index in self._attempts:
                self._attempts[index].append((began_s, end_s))
            self._free.give_back(index)
            self._policy.end(self._jobs[index], self._now_s)
            if (job := self._following(self._jobs[index], self._now_s)) is not None:
                heapq.heappush(self._due, (job.submit_s, next(self._numbers), job))

    def _begin(self, job: Job) -> bool:
        if not self._free.take(job.index, job.gpus, job.gpu_type):
            return False
        self._starts.setdefault(job.index, self._now_s)
        end_s = self._now_s + job.duration_s
        if job.index in self._attempts:
            end_s += GOES_ON_IN_S - self._saved_s[job.index]
        self._running[job.index] = self._now_s, end_s
        heapq.heappush(self._ends, (end_s, job.index))
        self._progress(len(self._starts))
        return True

    def _stop(self, index: int) -> None:
        """Take a job's GPUs back; it will go on from its last save."""
        began_s, _ = self._running.pop(index)
        done_s = self._now_s - began_s - (GOES_ON_IN_S if index in self._attempts else 0.0)
        saved_s = max(0.0, done_s // SAVED_EVERY_S * SAVED_EVERY_S)
        self._saved_s[index] = self._saved_s.get(index, 0.0) + saved_s
        self._attempts.setdefault(index, []).append((began_s, self._now_s))
        self._free.give_back(index)
