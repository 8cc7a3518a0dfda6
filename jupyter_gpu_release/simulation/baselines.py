"""Policies to compare with: first in first out, first fit, EASY backfill, and shortest first with known durations."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections import deque

from .cluster import FreeGpus, is_of_type
from .replay import Begin, SimulatedPolicy
from .trace import Job

#: jobs behind a blocked head that EASY looks at (Slurm's `bf_max_job_test`)
_BACKFILLED = 500


class Fifo(SimulatedPolicy):
    """First in, first out: whoever is first and does not fit holds up all others."""

    def __init__(self, free: FreeGpus) -> None:
        super().__init__(free)
        self._queue: deque[Job] = deque()

    def submit(self, job: Job, now_s: float) -> None:
        """Append it."""
        self._queue.append(job)

    def start(self, now_s: float, begin: Begin) -> None:
        """Start from the front until one does not fit."""
        while self._queue and begin(self._queue[0]):
            self._queue.popleft()


class _ByKey(SimulatedPolicy):
    """Of the jobs that fit, start the one with the least key, again and again."""

    def __init__(self, free: FreeGpus) -> None:
        super().__init__(free)
        #: jobs that ask for the same: if the first does not fit, none of them does
        self._alike: dict[tuple[float, str], list[tuple[float, int, Job]]] = {}

    @abstractmethod
    def key(self, job: Job) -> float:
        """Rank a job; the least goes first."""

    def submit(self, job: Job, now_s: float) -> None:
        """Put it among those that ask for the same."""
        heapq.heappush(self._alike.setdefault((job.gpus, job.gpu_type), []), (self.key(job), job.index, job))

    def start(self, now_s: float, begin: Begin) -> None:
        """Start whatever fits, in order."""
        while fitting := self._fitting():
            begin(heapq.heappop(fitting)[2])

    def _fitting(self) -> list[tuple[float, int, Job]] | None:
        fitting = [heap for (gpus, gpu_type), heap in self._alike.items() if heap and gpus <= self.free.count(gpu_type)]
        return min(fitting, key=lambda heap: heap[0][:2], default=None)


class FirstFit(_ByKey):
    """By age, and whoever does not fit is passed over: small jobs never wait, large gangs may wait for ever."""

    def key(self, job: Job) -> float:
        """Age."""
        return job.index


class ShortestFirst(_ByKey):
    """The shortest that fits. It knows the durations, which nobody does: a bound for what prediction can bring."""

    def key(self, job: Job) -> float:
        """Duration."""
        return job.duration_s


class Easy(SimulatedPolicy):
    """EASY backfill: by age, and behind a blocked head whatever does not delay it, by the true durations."""

    def __init__(self, free: FreeGpus) -> None:
        super().__init__(free)
        self._queue: list[Job] = []
        self._ends: dict[int, tuple[float, Job]] = {}

    def submit(self, job: Job, now_s: float) -> None:
        """Append it."""
        self._queue.append(job)

    def end(self, job: Job, now_s: float) -> None:
        """Forget it."""
        del self._ends[job.index]

    def start(self, now_s: float, begin: Begin) -> None:
        """Start from the front; then fill in behind the first that does not fit."""
        first = 0
        while first < len(self._queue) and self._begin(self._queue[first], now_s, begin):
            first += 1
        del self._queue[:first]
        if self._queue and self.free.total:
            self._backfill(now_s, begin)

    def _begin(self, job: Job, now_s: float, begin: Begin) -> bool:
        if not begin(job):
            return False
        self._ends[job.index] = (now_s + job.duration_s, job)
        return True

    def _backfill(self, now_s: float, begin: Begin) -> None:
        head, *behind = self._queue[:_BACKFILLED]
        head_s, spare = self._reservation(head)
        started = set()
        for job in behind:
            touches = is_of_type(head.gpu_type, job.gpu_type) or not job.gpu_type
            ends_before = not touches or now_s + job.duration_s <= head_s
            if (ends_before or job.gpus <= spare) and self._begin(job, now_s, begin):
                started.add(job.index)
                if not ends_before:
                    spare -= job.gpus
                if not self.free.total:
                    break
        if started:
            self._queue[:_BACKFILLED] = [job for job in self._queue[:_BACKFILLED] if job.index not in started]

    def _reservation(self, head: Job) -> tuple[float, float]:
        """The time when the head can start, and how many GPUs it then leaves."""
        free = self.free.count(head.gpu_type)
        for end_s, job in sorted(self._ends.values(), key=lambda end: (end[0], end[1].index)):
            free = round(free + self.free.held(job.index, head.gpu_type), 3)
            if free >= head.gpus:
                return end_s, free - head.gpus
        raise RuntimeError(f"job {head.index} fits no empty cluster")  # left out before the replay


BASELINES: dict[str, type[SimulatedPolicy]] = {
    "fifo": Fifo,
    "first_fit": FirstFit,
    "easy": Easy,
    "shortest_first": ShortestFirst,
}
