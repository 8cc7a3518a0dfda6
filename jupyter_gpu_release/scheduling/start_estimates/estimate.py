"""Start estimate of a waiting run: when, at the earliest and at the latest, after whom, and what would be sooner."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ..decisions import Wait
from ..plugins import run_order
from ..plugins.vetoes import cause
from ..run_times import Span
from ..schedule import run_actions, waits
from ..state import ClusterSnapshot, State
from ..workload import RankState, Run
from .alternatives import Change
from .expected_run_times import Case, ExpectedRunTimes, FrozenRunTimes, JoiningRunTimes
from .play_ahead import ExpectedStart, play_ahead

#: a change that brings less than this is not worth a word
_LEAST_GAIN, _LEAST_GAIN_S = 0.1, 5.0
_MOST_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds until the start; None: nobody knows. ``after``: the run at whose end it is expected."""

    run: str
    starts_in_s: float | None = None
    at_least_s: float | None = None
    at_most_s: float | None = None
    after: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another ask, in the words of the options, and the seconds until it would start."""

    change: str
    starts_in_s: float | None


def estimates(
    snapshot: ClusterSnapshot, expected: ExpectedRunTimes, wanted: Collection[str] | None = None
) -> dict[str, Estimate]:
    """The estimate of each waiting run (of ``wanted`` only)."""
    courses = {case: play_ahead(snapshot, expected, case, wanted) for case in Case}
    waiting = [run.run for run in snapshot.runs if all(rank.state is RankState.QUEUED for rank in run.ranks)]
    return {
        run: _estimate_of(run, [courses[case].get(run) for case in Case], expected.now_s)
        for run in waiting
        if wanted is None or run in wanted
    }


def _estimate_of(run: str, starts: Sequence[ExpectedStart | None], now_s: float) -> Estimate:
    early, expected, late = starts
    known = [start.at_s - now_s for start in starts if start is not None]
    at_least_s = None if early is None else min(known)
    at_most_s = None if late is None else max(known)
    if expected is None:
        return Estimate(run, None, at_least_s, at_most_s)
    return Estimate(run, expected.at_s - now_s, at_least_s, at_most_s, expected.after, expected.nodes)


def standing(snapshot: ClusterSnapshot, expected: ExpectedRunTimes, run: str) -> Wait | None:
    """The place and the reason with which a run would wait after a pass now; None: it would start."""
    state = State(snapshot, FrozenRunTimes(expected, Case.EXPECTED))
    run_actions(state, expected.now_s)
    return next((wait for wait in waits(state, expected.now_s) if wait.run == run), None)


def joining(
    state: State, run: Run, length: Span, rank: tuple[float, ...], waiting: Sequence[str], now_s: float
) -> Wait | None:
    """The place and the reason with which a run would join those that wait now; None: it would start.

    ``length`` and ``rank`` are expected of it; ``waiting``: runs of its queue by their places. ``state`` is left as it
    was.
    """
    run_times = state.run_times
    state.run_times = JoiningRunTimes(run_times, run.run, length, rank)
    state.submit(run)
    try:
        run_actions(state, now_s)
        job, key = state.jobs[run.run], run_order.keys(state, now_s)
        if not job.queued:
            return None
        ahead = [state.jobs[other] for other in waiting if other in state.jobs]
        return Wait(run.run, run.queue, 1 + bisect_right(ahead, key(job), key=key), cause(state, job))
    finally:
        state.undo()
        state.end(run.run)
        state.run_times = run_times


def sooner(
    snapshot: ClusterSnapshot, expected: ExpectedRunTimes, run: Run, families: Iterable[Iterable[Change]]
) -> list[Alternative]:
    """Other asks with which a run would start sooner, the soonest first; of each family the best.

    The policy decides on each. A run that waits already would be sent anew, and counts as submitted now.
    """
    others = tuple(other for other in snapshot.runs if other.run != run.run)
    now_s = expected.now_s

    def start_in_s(asked: Run) -> float | None:
        course = play_ahead(replace(snapshot, runs=(*others, asked)), expected, wanted=(run.run,))
        return course[run.run].at_s - now_s if run.run in course else None

    as_it_is_s = start_in_s(run)
    if as_it_is_s == 0:
        return []
    found: list[Alternative] = []
    for family in families:
        tried = [Alternative(each.words, start_in_s(replace(each.run, submitted_at=now_s))) for each in family]
        good = [each for each in tried if _is_sooner(each.starts_in_s, as_it_is_s)]
        found += sorted(good, key=_soonest)[:1]
    return sorted(found, key=_soonest)[:_MOST_ALTERNATIVES]


def _soonest(alternative: Alternative) -> float:
    return float("inf") if alternative.starts_in_s is None else alternative.starts_in_s


def _is_sooner(in_s: float | None, as_it_is_s: float | None) -> bool:
    if in_s is None:
        return False
    return as_it_is_s is None or in_s <= as_it_is_s - max(_LEAST_GAIN_S, _LEAST_GAIN * as_it_is_s)
