"""Our order in the replay: by waiting time over expected work, with a reservation for the first that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..scheduling.estimates import Campaign, Estimates
from ..scheduling.work_order import OrderSettings, Ranked, WaitingRun, WorkOrder
from .cluster import FreeGpus, is_of_type
from .replay import SimulatedPolicy
from .trace import Job

#: remaining times are taken as so many times what is expected: whoever may slip in does so more often
_PESSIMISM = 4.0


class Configured(SimulatedPolicy):
    """Our rule: it knows no durations, only what it has learned from jobs that have ended."""

    def __init__(self, free: FreeGpus, settings: OrderSettings | None = None) -> None:
        super().__init__(free)
        self.estimates = Estimates()
        self._order = WorkOrder(self.estimates, free.total, settings)
        self._jobs: dict[int, Job] = {}
        self._running: dict[int, tuple[WaitingRun, Campaign, float]] = {}

    def submit(self, job: Job, now_s: float) -> None:
        """Queue it with those that it is expected to be like."""
        self._jobs[job.index] = job
        campaign = self.estimates.submitted(job.user, (job.gpus, job.gpu_type), now_s, job.task)
        self._order.submit(job.index, campaign, job.gpus, now_s)

    def end(self, job: Job, now_s: float) -> None:
        """Learn how long it took."""
        run, campaign, started_s = self._running.pop(job.index)
        del self._jobs[job.index]
        self._order.end(run, campaign, started_s, now_s)

    def start(self, now_s: float, begin: Callable[[Job], bool]) -> None:
        """Start in order; behind the first that does not fit only whoever is not expected to delay it."""
        while self.free.total and (ranked := self._next(now_s)) is not None:
            if not begin(self._jobs[ranked.run.run]):
                raise RuntimeError(f"job {ranked.run.run} does not fit where it was found to fit")
            self._order.start(ranked, now_s)
            self._running[ranked.run.run] = (ranked.run, ranked.campaign, now_s)

    def _next(self, now_s: float) -> Ranked | None:
        order = iter(self._order.ranked(now_s))
        first = next(order, None)
        if first is None or self._fits(first):
            return first
        behind = [ranked for ranked in order if self._fits(ranked)]
        return next(self._harmless(first, behind, now_s), None) if behind else None

    def _fits(self, ranked: Ranked) -> bool:
        return ranked.run.gpus <= self.free.count(self._jobs[ranked.run.run].gpu_type)

    def _harmless(self, head: Ranked, behind: list[Ranked], now_s: float) -> Iterator[Ranked]:
        """Those who use other GPUs, are expected to end before the head can start, or fit in beside it."""
        wanted = self._jobs[head.run.run]
        head_s, spare = self._reservation(wanted, now_s)
        for ranked in behind:
            gpu_type = self._jobs[ranked.run.run].gpu_type
            touches = not gpu_type or is_of_type(wanted.gpu_type, gpu_type)
            ends_s = now_s + self._order.expected_s(ranked, now_s)
            if not touches or ends_s <= head_s or ranked.run.gpus <= spare:
                yield ranked

    def _reservation(self, head: Job, now_s: float) -> tuple[float, int]:
        """The time when the head is expected to start, and how many GPUs it then leaves."""
        free = self.free.count(head.gpu_type)
        remaining_s = self.estimates.remaining_s
        ends = sorted(
            (_PESSIMISM * remaining_s(campaign, started_s, now_s), index)
            for index, (_, campaign, started_s) in self._running.items()
        )
        for left_s, index in ends:
            free += self.free.held(index, head.gpu_type)
            if free >= head.gpus:
                return now_s + left_s, free - head.gpus
        raise RuntimeError(f"job {head.index} fits no empty cluster")  # left out before the replay
