"""Who is next: queues against their siblings, runs against those of their queue."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from .plugins import queue_order, run_order
from .state import Job, State


class Contest:
    """Waiting runs in the order in which they are looked at; what was started meanwhile counts."""

    def __init__(self, state: State, shares: Mapping[str, float], jobs: Iterable[Job], now_s: float) -> None:
        self._state, self._shares, self._now_s = state, shares, now_s
        self._heaps: dict[str, list[tuple[tuple[float, ...], Job]]] = {}
        for job in jobs:
            self._heaps.setdefault(job.run.queue, []).append((self._key(job), job))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def _key(self, job: Job) -> tuple[float, ...]:
        return run_order.key(self._state, job, self._now_s)

    def push(self, job: Job) -> None:
        """Enter a run (again)."""
        heapq.heappush(self._heaps.setdefault(job.run.queue, []), (self._key(job), job))

    def pop(self) -> Job | None:
        """The next run, taken out."""
        job = self._best("")
        if job is not None:
            heapq.heappop(self._heaps[job.run.queue])
        return job

    def _best(self, name: str) -> Job | None:
        children = self._state.tree.children.get(name)
        if not children:
            return self._head(name)
        heads = [(child, job) for child in children if (job := self._best(child)) is not None]
        if len(heads) <= 1:
            return heads[0][1] if heads else None
        return min(heads, key=lambda head: self._queue_key(*head))[1]

    def _queue_key(self, name: str, job: Job) -> tuple[float, ...]:
        gpus = len(job.step()) * job.run.gpus_per_rank
        return queue_order.key(self._state, self._shares, name, gpus)

    def _head(self, name: str) -> Job | None:
        """The first run of a leaf; keys that have changed since they were made are made anew."""
        heap = self._heaps.get(name)
        while heap:
            key, job = heap[0]
            now = self._key(job)
            if now == key:
                return job
            heapq.heapreplace(heap, (now, job))
        return None
