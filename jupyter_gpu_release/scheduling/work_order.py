"""The order of waiting runs by waiting time over expected work, and the bound on how long anybody is overtaken.

Pure: told of every submission, start and end. Runs of one campaign are expected to be alike, so that among them age
decides, and only the oldest of each competes with the others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from .estimates import Campaign, Estimates


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """Numbers of the rule; docs/simulator.md says how they were chosen."""

    #: runs are told apart by their expected work only below the point where smaller runs make up this part of all work
    share_told_apart: float = 0.35
    #: 1: half the work counts as much as twice the wait; less: less
    sharpness: float = 0.8
    #: a GPU of many counts for more, because a gang keeps others out while its GPUs come together
    gang_exponent: float = 1.25
    #: waiting time that everybody is given at the start: the order follows the work at first, and age little by little
    head_start_s: float = 86_400.0
    #: part of the pool from which on a run is a gang
    gang_share: float = 0.018
    gang_bonus: float = 1.2
    #: how much of the time that a run waited without being overtaken may be added by others that overtake it
    overtaking: float = 0.5
    gang_overtaking: float = 0.15
    #: and this much in any case
    overtaking_floor_s: float = 7200.0
    gang_overtaking_floor_s: float = 1800.0


#: ended runs whose work tells what is small, and after how many more it is looked at again
_WORKS, _EVERY = 1000, 20


class WaitingRun(NamedTuple):
    """A run in the queue."""

    run: int
    ordinal: int
    submit_s: float
    gpus: int


class Ranked(NamedTuple):
    """The oldest run of a campaign, and where it stands: whoever is less goes first."""

    rank: tuple[int, float, int]
    run: WaitingRun
    campaign: Campaign

    @property
    def is_overdue(self) -> bool:
        """Tell if it was overtaken for too long."""
        return self.rank[0] == 0


class _Sums:
    """Sums over all that came later (Fenwick's tree, growing)."""

    def __init__(self) -> None:
        self._tree = [0.0]
        self._total = 0.0

    def append(self) -> None:
        place = len(self._tree)
        self._tree.append(self._before(place - 1) - self._before(place - (place & -place)))

    def add(self, ordinal: int, value: float) -> None:
        self._total += value
        place = ordinal + 1
        while place < len(self._tree):
            self._tree[place] += value
            place += place & -place

    def _before(self, place: int) -> float:
        found = 0.0
        while place:
            found += self._tree[place]
            place -= place & -place
        return found

    def after(self, ordinal: int) -> float:
        """Sum over all ordinals above this one."""
        return self._total - self._before(ordinal + 1)


class WorkOrder:
    """Waiting runs of one pool of GPUs."""

    def __init__(self, estimates: Estimates, gpus: int, settings: OrderSettings | None = None) -> None:
        self._estimates = estimates
        self._gpus = gpus
        self._settings = settings or OrderSettings()
        self._waiting: dict[int, tuple[Campaign, deque[WaitingRun]]] = {}
        self._works: deque[float] = deque(maxlen=_WORKS)
        self._small_work = 1e12
        self._since = 0
        self._submitted = 0
        #: GPU-seconds of ended runs; GPUs, and GPUs × start, of running ones
        self._used, self._held, self._held_since = _Sums(), _Sums(), _Sums()

    def submit(self, run: int, campaign: Campaign, gpus: int, now_s: float) -> WaitingRun:
        """Queue a run."""
        waiting = WaitingRun(run, self._submitted, now_s, gpus)
        self._submitted += 1
        for sums in (self._used, self._held, self._held_since):
            sums.append()
        self._waiting.setdefault(id(campaign), (campaign, deque()))[1].append(waiting)
        return waiting

    def start(self, ranked: Ranked, now_s: float) -> None:
        """Take a run out of the queue; it is its campaign's oldest."""
        runs = self._waiting[id(ranked.campaign)][1]
        runs.popleft()
        if not runs:
            del self._waiting[id(ranked.campaign)]
        self._estimates.started(ranked.campaign, now_s)
        self._held.add(ranked.run.ordinal, ranked.run.gpus)
        self._held_since.add(ranked.run.ordinal, ranked.run.gpus * now_s)

    def end(self, run: WaitingRun, campaign: Campaign, started_s: float, now_s: float) -> None:
        """Learn from a run that has ended."""
        duration_s = now_s - started_s
        work = run.gpus * duration_s
        self._held.add(run.ordinal, -run.gpus)
        self._held_since.add(run.ordinal, -run.gpus * started_s)
        self._used.add(run.ordinal, work)
        self._estimates.ended(campaign, started_s, duration_s)
        self._works.append(work)
        self._since += 1
        if self._since >= _EVERY:
            self._since, self._small_work = 0, self._told_apart_below()

    def _told_apart_below(self) -> float:
        left = self._settings.share_told_apart * sum(self._works)
        for work in sorted(self._works):
            left -= work
            if left < 0:
                return max(work, 1.0)
        return 1e12

    def overtaken_s(self, run: WaitingRun, now_s: float) -> float:
        """Time that all GPUs together have spent on runs submitted later."""
        after = run.ordinal
        running = self._held.after(after) * now_s - self._held_since.after(after)
        return (self._used.after(after) + running) / self._gpus

    def ranked(self, now_s: float) -> list[Ranked]:
        """The oldest run of each campaign, in order."""
        overdue = self._overdue(now_s)
        s = self._settings
        gang_gpus, small_work = s.gang_share * self._gpus, self._small_work
        expected_s = self._estimates.expected_s
        found = []
        for campaign, runs in self._waiting.values():
            run = runs[0]
            if run.ordinal in overdue:
                rank = (0, run.submit_s, run.ordinal)
            else:
                work = min(expected_s(campaign, now_s) * run.gpus**s.gang_exponent, small_work)
                key = (now_s - run.submit_s + s.head_start_s) / max(work / small_work, 1e-12) ** s.sharpness
                rank = (1, -key * s.gang_bonus if run.gpus >= gang_gpus else -key, run.ordinal)
            found.append(Ranked(rank, run, campaign))
        found.sort()
        return found

    def _overdue(self, now_s: float) -> set[int]:
        """Of the oldest run of each size, those that were overtaken for too long."""
        oldest: dict[int, WaitingRun] = {}
        for _, runs in self._waiting.values():
            run = runs[0]
            if run.gpus not in oldest or run.ordinal < oldest[run.gpus].ordinal:
                oldest[run.gpus] = run
        return {run.ordinal for run in oldest.values() if self._is_overdue(run, now_s)}

    def _is_overdue(self, run: WaitingRun, now_s: float) -> bool:
        s = self._settings
        overtaken_s = self.overtaken_s(run, now_s)
        is_gang = run.gpus >= s.gang_share * self._gpus
        part = s.gang_overtaking if is_gang else s.overtaking
        floor_s = s.gang_overtaking_floor_s if is_gang else s.overtaking_floor_s
        return overtaken_s > floor_s + part * (now_s - run.submit_s - overtaken_s)

    def expected_s(self, ranked: Ranked, now_s: float) -> float:
        """Time that a waiting run is expected to take."""
        return self._estimates.expected_s(ranked.campaign, now_s)
