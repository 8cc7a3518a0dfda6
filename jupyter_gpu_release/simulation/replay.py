"""The replay of a trace in virtual time."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .cluster import ClusterSpec, FreeGpus
from .trace import Job


class SimulatedPolicy(ABC):
    """Decides who starts. The replay calls it on one thread, in virtual time."""

    def __init__(self, free: FreeGpus) -> None:
        #: GPUs that are free now; the replay keeps it true
        self.free = free

    @abstractmethod
    def submit(self, job: Job, now_s: float) -> None:
        """Take a job into the queue."""

    def end(self, job: Job, now_s: float) -> None:  # noqa: B027 (not every policy wants to know)
        """Hear that a job has ended; its GPUs are free already."""

    @abstractmethod
    def start(self, now_s: float, begin: Callable[[Job], bool]) -> None:
        """Call ``begin`` for every job that starts now; it is False (and nothing happens) where GPUs are lacking.

        Called once for everything that happens in one instant.
        """


@dataclass(frozen=True)
class Replayed:
    """Starts of all jobs; ``jobs`` are by age, ``starts_s`` in the same order."""

    jobs: Sequence[Job]
    starts_s: Sequence[float]
    gpus: int

    def waits_s(self) -> list[float]:
        """Seconds that each job waited."""
        return [start - job.submit_s for start, job in zip(self.starts_s, self.jobs, strict=True)]


def replay(
    jobs: Sequence[Job],
    cluster: ClusterSpec,
    make_policy: Callable[[FreeGpus], SimulatedPolicy],
    progress: Callable[[int], None] = lambda started: None,
) -> Replayed:
    """Play all jobs to their end. Every job must fit the empty cluster. ``progress`` hears how many have started."""
    return _Replay(jobs, cluster, make_policy, progress).play()


class _Replay:
    def __init__(
        self,
        jobs: Sequence[Job],
        cluster: ClusterSpec,
        make_policy: Callable[[FreeGpus], SimulatedPolicy],
        progress: Callable[[int], None],
    ) -> None:
        self._jobs, self._cluster, self._progress = jobs, cluster, progress
        self._free = FreeGpus(cluster)
        self._policy = make_policy(self._free)
        self._starts: dict[int, float] = {}
        #: end, index of the job
        self._ends: list[tuple[float, int]] = []
        self._now_s = 0.0

    def play(self) -> Replayed:
        """Go from instant to instant."""
        submitted = 0
        while submitted < len(self._jobs) or self._ends:
            self._now_s = self._next(submitted)
            self._end_jobs()
            while submitted < len(self._jobs) and self._jobs[submitted].submit_s <= self._now_s:
                self._policy.submit(self._jobs[submitted], self._now_s)
                submitted += 1
            if self._free.total:
                self._policy.start(self._now_s, self._begin)
        starts = [self._starts[job.index] for job in self._jobs]
        return Replayed(self._jobs, starts, self._cluster.gpus)

    def _next(self, submitted: int) -> float:
        times = [self._ends[0][0]] if self._ends else []
        if submitted < len(self._jobs):
            times.append(self._jobs[submitted].submit_s)
        return min(times)

    def _end_jobs(self) -> None:
        while self._ends and self._ends[0][0] <= self._now_s:
            job = self._jobs[heapq.heappop(self._ends)[1]]
            self._free.give_back(job.index)
            self._policy.end(job, self._now_s)

    def _begin(self, job: Job) -> bool:
        if not self._free.take(job.index, job.gpus, job.gpu_type):
            return False
        self._starts[job.index] = self._now_s
        heapq.heappush(self._ends, (self._now_s + job.duration_s, job.index))
        self._progress(len(self._starts))
        return True
