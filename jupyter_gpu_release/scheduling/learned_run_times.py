"""The order of waiting runs by waiting time over expected work, and the bound on how long anybody is overtaken.

Pure. Runs of one campaign are expected to be alike, so that among them age decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .run_times import Campaign, RunTimeHistory, Span, median_error
from .state import StatedRunTimes
from .workload import Run


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """Numbers of the rule; docs/design/order-search.md says how they were chosen."""

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
    overtaking: float = 0.3
    gang_overtaking: float = 0.12
    #: and this much in any case
    overtaking_floor_s: float = 7200.0
    gang_overtaking_floor_s: float = 1800.0


#: running runs are taken to go on so many times longer than expected
_LONG_SIDE = 4.0
#: ended runs whose work tells what is small, and after how many more it is looked at again
_WORKS, _EVERY = 1000, 20
#: ended runs that are kept apart, beside four for each that waits or runs
_MOST_ENDED = 10_000


@dataclass(slots=True)
class _Known:
    """A run that waits or runs."""

    ordinal: int
    submit_s: float
    gpus: float
    campaign: Campaign
    started_s: float | None = None
    #: as it was when the run started
    expected_s: float = 0.0


class _Sums:
    """Sums over all that came later (Fenwick's tree, growing)."""

    def __init__(self) -> None:
        self._tree = [0.0]
        self._total = 0.0

    @classmethod
    def of(cls, after: Sequence[float]) -> _Sums:
        """Sums that are these above each ordinal; one more place holds what came after the last."""
        found = cls()
        for ordinal in range(len(after) + 1):
            found.append()
            if ordinal:
                later = after[ordinal] if ordinal < len(after) else 0.0
                found.add(ordinal, after[ordinal - 1] - later)
        return found

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


class LearnedRunTimes(StatedRunTimes):
    """Run times learned from runs that have ended; told of every submission, start and end.

    Of a run that it was not told of it says what that run carries itself.
    """

    def __init__(self, gpus: int, settings: OrderSettings | None = None) -> None:
        self._gpus = gpus
        self._settings = settings or OrderSettings()
        self._history = RunTimeHistory()
        self._runs: dict[str, _Known] = {}
        #: waiting runs by size, the oldest first; those that wait no longer are dropped when they come to the front
        self._by_size: dict[float, deque[tuple[int, str]]] = {}
        self._works: deque[float] = deque(maxlen=_WORKS)
        #: expected and true durations
        self._judged: deque[tuple[float, float]] = deque(maxlen=_WORKS)
        self._small_work = 1e12
        self._since = 0
        self._submitted = 0
        #: GPU-seconds of ended runs; GPUs, and GPUs × start, of running ones
        self._used, self._held, self._held_since = _Sums(), _Sums(), _Sums()
        #: runs that are overdue at a moment
        self._overdue: tuple[float, frozenset[str]] | None = None

    # --- told by whoever keeps it

    def submitted(self, run: str, user: str, gpus: float, gpu_type: str, now_s: float, task: str = "") -> str:
        """Note a run, and return the name of its campaign; ``task``: its cell or function."""
        campaign = self._history.submitted(user, (gpus, gpu_type), now_s, task)
        if self._submitted > _MOST_ENDED + 4 * len(self._runs):
            self._forget_ended()
        self._runs[run] = _Known(self._submitted, now_s, gpus, campaign)
        self._by_size.setdefault(gpus, deque()).append((self._submitted, run))
        self._submitted += 1
        for sums in (self._used, self._held, self._held_since):
            sums.append()
        self._overdue = None
        return str(campaign.number)

    def _forget_ended(self) -> None:
        """Number those that are there anew. What ended between two of them counts with the later one."""
        living = sorted(self._runs.items(), key=lambda each: each[1].ordinal)
        sums = [self._used, self._held, self._held_since]
        after = [[each.after(known.ordinal) for _, known in living] for each in sums]
        self._used, self._held, self._held_since = (_Sums.of(values) for values in after)
        self._by_size.clear()
        for ordinal, (run, known) in enumerate(living):
            known.ordinal = ordinal
            if known.started_s is None:
                self._by_size.setdefault(known.gpus, deque()).append((ordinal, run))
        self._submitted = len(living) + 1

    def resize(self, gpus: int) -> None:
        """Note that the pool has another number of GPUs."""
        self._gpus = max(gpus, 1)

    def knows(self, run: str) -> bool:
        """Tell if a run was submitted and has not ended."""
        return run in self._runs

    def has_started(self, run: str) -> bool:
        """Tell if a run was started and has not ended."""
        return run in self._runs and self._runs[run].started_s is not None

    def campaign_of(self, run: str) -> str:
        """The name of a run's campaign."""
        return str(self._runs[run].campaign.number)

    def started(self, run: str, now_s: float) -> None:
        """Note a start."""
        known = self._runs.get(run)
        if known is None or known.started_s is not None:
            return
        known.started_s = now_s
        known.expected_s = self._history.expected_s(known.campaign, now_s)
        self._history.started(known.campaign, now_s)
        self._held.add(known.ordinal, known.gpus)
        self._held_since.add(known.ordinal, known.gpus * now_s)
        self._overdue = None

    def put_back(self, run: str) -> None:
        """A run that was started waits again in its old place, and nothing is learned from that."""
        known = self._runs[run]
        if known.started_s is None:
            return
        self._held.add(known.ordinal, -known.gpus)
        self._held_since.add(known.ordinal, -known.gpus * known.started_s)
        self._history.put_back(known.campaign, known.started_s)
        known.started_s, self._overdue = None, None
        waiting = self._by_size.setdefault(known.gpus, deque())
        if (known.ordinal, run) not in waiting:
            self._by_size[known.gpus] = deque(sorted([*waiting, (known.ordinal, run)]))

    def ended(self, run: str, now_s: float) -> None:
        """Learn from a run that has ended; one that never started is forgotten."""
        known = self._runs.pop(run, None)
        self._overdue = None
        if known is None or known.started_s is None:
            return
        duration_s = max(0.0, now_s - known.started_s)  # the clock may have been set back
        work = known.gpus * duration_s
        self._held.add(known.ordinal, -known.gpus)
        self._held_since.add(known.ordinal, -known.gpus * known.started_s)
        self._used.add(known.ordinal, work)
        self._history.ended(known.campaign, known.started_s, duration_s)
        self._works.append(work)
        self._judged.append((known.expected_s, duration_s))
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

    def median_factor(self) -> float:
        """Median factor between what the last runs were expected to take, when they started, and what they took."""
        return median_error(self._judged)

    # --- asked by a pass

    def rank(self, run: Run, now_s: float) -> tuple[float, ...]:
        """Overdue runs first, by age; then by waiting time over expected work."""
        if run.run in self.overdue(now_s):
            return (0.0, run.submitted_at)
        known = self._runs.get(run.run)
        if known is None:
            return super().rank(run, now_s)
        return self._rank(self._history.expected_s(known.campaign, now_s), known.gpus, now_s - known.submit_s)

    def _rank(self, expected_s: float, gpus: float, waited_s: float) -> tuple[float, ...]:
        s = self._settings
        work = min(expected_s * gpus**s.gang_exponent, self._small_work) / self._small_work
        key = (waited_s + s.head_start_s) / max(work, 1e-12) ** s.sharpness
        return (1.0, -key * s.gang_bonus if self._is_gang(gpus) else -key)

    def _is_gang(self, gpus: float) -> bool:
        return gpus >= self._settings.gang_share * self._gpus

    def expected_s(self, run: Run, now_s: float) -> float | None:
        """Time that a waiting run is expected to take, at most its limit. Of one that is like no other: its limit."""
        known = self._runs.get(run.run)
        if known is None:
            return super().expected_s(run, now_s)
        if not self._history.are_founded(known.campaign):
            return run.limit_s
        expected_s = self._history.expected_s(known.campaign, now_s)
        return expected_s if run.limit_s is None else min(expected_s, run.limit_s)

    def remaining_s(self, run: Run, started_at: float, now_s: float) -> float | None:
        """Time until a running run is expected to have ended, on the long side: so more may slip in before."""
        known = self._runs.get(run.run)
        if known is None:
            return super().remaining_s(run, started_at, now_s)
        left_s = _LONG_SIDE * self._history.remaining_s(known.campaign, started_at, now_s)
        return left_s if run.limit_s is None else min(left_s, max(0.0, started_at + run.limit_s - now_s))

    # --- asked by an estimate

    def length(self, run: Run, now_s: float) -> Span:
        """How long a waiting run will last once it starts."""
        known = self._runs.get(run.run)
        if known is None:
            return Span(0.0, run.expected_s, run.limit_s if run.expected_s is None else run.expected_s)
        return self._history.length(known.campaign, now_s, run.limit_s)

    def of_new(self, run: Run, gpus: float, gpu_type: str, task: str, now_s: float) -> tuple[Span, tuple[float, ...]]:
        """How long a run would last that were submitted now, and its place (as :meth:`rank`)."""
        campaign = self._history.campaign_of(run.user, (gpus, gpu_type), now_s, task)
        length = self._history.length(campaign, now_s, run.limit_s)
        return length, self._rank(self._history.expected_s(campaign, now_s), gpus, 0.0)

    def rest(self, run: Run, now_s: float) -> Span:
        """How long a running run will go on."""
        started_s, known = run.started_at or now_s, self._runs.get(run.run)
        if known is not None:
            return self._history.rest(known.campaign, started_s, now_s, run.limit_s)
        left_s = None if run.expected_s is None else max(0.0, started_s + run.expected_s - now_s)
        return Span(0.0, left_s, left_s)

    def overdue(self, now_s: float) -> frozenset[str]:
        """Of the oldest waiting run of each size, those that were overtaken for too long."""
        if self._overdue is None or self._overdue[0] != now_s:
            oldest = [run for runs in self._by_size.values() if (run := self._oldest(runs)) is not None]
            self._overdue = now_s, frozenset(run for run in oldest if self._is_overdue(run, now_s))
        return self._overdue[1]

    def _oldest(self, runs: deque[tuple[int, str]]) -> str | None:
        while runs:
            ordinal, run = runs[0]
            known = self._runs.get(run)
            if known is not None and known.ordinal == ordinal and known.started_s is None:
                return run
            runs.popleft()
        return None

    def _is_overdue(self, run: str, now_s: float) -> bool:
        s, known, overtaken_s = self._settings, self._runs[run], self.overtaken_s(run, now_s)
        small = self._smallness(known.gpus)
        part = s.gang_overtaking + small * (s.overtaking - s.gang_overtaking)
        floor_s = s.gang_overtaking_floor_s + small * (s.overtaking_floor_s - s.gang_overtaking_floor_s)
        return overtaken_s > floor_s + part * (now_s - known.submit_s - overtaken_s)

    def _smallness(self, gpus: float) -> float:
        """0: a gang; 1: half of one, or less. What is nearly a gang may be overtaken little more than a gang."""
        return min(1.0, max(0.0, self._settings.gang_share * self._gpus / max(gpus, 1) - 1))

    def overtaken_s(self, run: str, now_s: float) -> float:
        """Time that all GPUs together have spent on runs submitted later."""
        after = self._runs[run].ordinal
        running = self._held.after(after) * now_s - self._held_since.after(after)
        return (self._used.after(after) + running) / self._gpus
