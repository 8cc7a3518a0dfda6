"""Expected run times of one moment, frozen: how long each run lasts at least, probably, at most, and who goes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..run_times import Span
from ..state import RunTimes, StatedRunTimes
from ..workload import Run


class Case(Enum):
    """A course of things: everything ends early, as expected, or late."""

    EARLY = "early"
    EXPECTED = "expected"
    LATE = "late"


def _seconds(span: Span, case: Case) -> float | None:
    return {Case.EARLY: span.early_s, Case.EXPECTED: span.expected_s, Case.LATE: span.late_s}[case]


@dataclass(frozen=True)
class ExpectedRunTimes:
    """Spans and ranks by run. Runs without an entry are taken as they describe themselves."""

    now_s: float
    #: of running runs: until they end
    remaining: Mapping[str, Span] = field(default_factory=dict)
    #: of waiting runs: from start to end
    lengths: Mapping[str, Span] = field(default_factory=dict)
    #: place of waiting runs among those of their queue
    ranks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def remaining_s(self, run: Run, started_at: float, case: Case) -> float | None:
        """Seconds from ``now_s`` until a running run ends."""
        span = self.remaining.get(run.run)
        if span is None:
            return StatedRunTimes().remaining_s(run, started_at, self.now_s)
        return _seconds(span, case)

    def length_s(self, run: Run, case: Case) -> float | None:
        """Seconds that a waiting run lasts."""
        span = self.lengths.get(run.run)
        if span is None:
            return StatedRunTimes().expected_s(run, self.now_s)
        return _seconds(span, case)


class FrozenRunTimes(RunTimes):
    """One case of the expected run times, as a pass asks for it."""

    def __init__(self, expected: ExpectedRunTimes, case: Case) -> None:
        self._expected_run_times = expected
        self._case = case

    def rank(self, run: Run, now_s: float) -> tuple[float, ...]:
        """The place that it had at that moment."""
        known = self._expected_run_times.ranks.get(run.run)
        return StatedRunTimes().rank(run, now_s) if known is None else known

    def expected_s(self, run: Run, now_s: float) -> float | None:
        """Seconds that a waiting run lasts."""
        return self._expected_run_times.length_s(run, self._case)

    def remaining_s(self, run: Run, started_at: float, now_s: float) -> float | None:
        """Seconds until a run ends that ran already, or was started while playing ahead."""
        begun = self._expected_run_times.now_s
        if run.run in self._expected_run_times.remaining or started_at < begun:
            left_s = self._expected_run_times.remaining_s(run, started_at, self._case)
            return None if left_s is None else left_s - (now_s - begun)
        length_s = self._expected_run_times.length_s(run, self._case)
        return None if length_s is None else length_s - (now_s - started_at)


class JoiningRunTimes(RunTimes):
    """Other run times, and what is expected of one run that it does not know."""

    def __init__(self, run_times: RunTimes, run: str, length: Span, rank: tuple[float, ...]) -> None:
        self._run_times = run_times
        self._run = run
        self._length = length
        self._rank = rank

    def rank(self, run: Run, now_s: float) -> tuple[float, ...]:
        """The place that it would have."""
        return self._rank if run.run == self._run else self._run_times.rank(run, now_s)

    def expected_s(self, run: Run, now_s: float) -> float | None:
        """Seconds that a waiting run lasts."""
        return self._length.expected_s if run.run == self._run else self._run_times.expected_s(run, now_s)

    def remaining_s(self, run: Run, started_at: float, now_s: float) -> float | None:
        """Seconds until a running run ends."""
        return self._run_times.remaining_s(run, started_at, now_s)
