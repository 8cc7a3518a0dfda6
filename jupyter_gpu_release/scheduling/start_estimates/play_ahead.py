"""Projection: a copy of the state goes from one expected end to the next, with a pass of the policy at each."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass, replace

from ..decisions import Preempt, Start
from ..schedule import decide_on
from ..state import ClusterSnapshot, State
from ..workload import Rank, RankState, Run
from .expected_run_times import Case, ExpectedRunTimes, FrozenRunTimes

#: ends that are looked at; what starts later is too far away to be told
MOST_STEPS = 400
#: passes at one moment: where some are preempted, more may start
_MOST_PASSES = 20


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """A start to come; ``after``: the run at whose end it is, empty where it is now."""

    run: str
    at_s: float
    nodes: tuple[str, ...]
    after: str = ""


def play_ahead(
    snapshot: ClusterSnapshot,
    expected: ExpectedRunTimes,
    case: Case = Case.EXPECTED,
    wanted: Collection[str] | None = None,
) -> dict[str, ExpectedStart]:
    """The starts of waiting runs, as far as it can be told, by run.

    ``wanted``: stop when these have started (None: all). Runs that are preempted are taken as gone.
    """
    return _Play(snapshot, expected, case).play(wanted)


class _Play:
    def __init__(self, snapshot: ClusterSnapshot, expected: ExpectedRunTimes, case: Case) -> None:
        self._expected_run_times, self._case = expected, case
        self._now_s = expected.now_s
        staying = tuple(run for run in snapshot.runs if not _is_leaving(run))
        self._state = State(replace(snapshot, runs=staying), FrozenRunTimes(expected, case))
        self._found: dict[str, ExpectedStart] = {}
        self._last_ended = ""
        self._ends: list[tuple[float, int, str]] = []
        #: of those that run; what the heap says beyond that is out of date
        self._end_at: dict[str, float] = {}
        #: of those that have begun and are preempted: seconds that they still have to run
        self._left: dict[str, float | None] = {}
        for run in staying:
            if run.started_at is not None and any(rank.state is RankState.RUNNING for rank in run.ranks):
                self._left[run.run] = None
                self._expect_end(run.run, expected.remaining_s(run, run.started_at, case))

    def _expect_end(self, run: str, in_s: float | None) -> None:
        if in_s is not None and in_s != float("inf"):
            self._end_at[run] = self._now_s + max(0.0, in_s)
            heapq.heappush(self._ends, (self._end_at[run], len(self._ends), run))

    def play(self, wanted: Collection[str] | None) -> dict[str, ExpectedStart]:
        """Go from end to end."""
        for _ in range(MOST_STEPS):
            self._start_all()
            if not self._ends or self._is_done(wanted):
                break
            self._end_next()
        return self._found

    def _is_done(self, wanted: Collection[str] | None) -> bool:
        return not self._state.kinds if wanted is None else self._found.keys() >= set(wanted)

    def _start_all(self) -> None:
        for _ in range(_MOST_PASSES):
            decided = decide_on(self._state, self._now_s)
            if not decided:
                break
            for each in decided:
                if isinstance(each, Preempt):
                    self._preempt(each)
            for each in decided:
                if isinstance(each, Start):
                    self._start(each)

    def _preempt(self, decision: Preempt) -> None:
        """These ranks go back to the queue at once, and the run has as long to go on as before."""
        name, job = decision.run, self._state.jobs[decision.run]
        ranks = tuple(
            Rank() if index in decision.ranks or state is RankState.QUEUED else Rank(state, place)
            for index, (state, place) in enumerate(zip(job.states, job.places, strict=True))
        )
        is_whole = all(rank.state is RankState.QUEUED for rank in ranks)
        run = replace(job.run, ranks=ranks, started_at=None if is_whole else job.started_at)
        self._state.end(name)
        self._state.submit(run)
        self._state.promise(name, decision.moves)
        if is_whole:
            end_s = self._end_at.pop(name, None)
            self._left[name] = None if end_s is None else end_s - self._now_s

    def _start(self, start: Start) -> None:
        first = not self._state.jobs[start.run].held
        self._state.start(start.run, start.ranks, self._now_s)
        nodes = tuple(dict.fromkeys(node for _, node in start.ranks))
        if start.run in self._left:
            if first:
                self._expect_end(start.run, self._left[start.run])
        elif start.run not in self._found:
            self._found[start.run] = ExpectedStart(start.run, self._now_s, nodes, self._last_ended)
            self._left[start.run] = None
            self._expect_end(start.run, self._expected_run_times.length_s(self._state.jobs[start.run].run, self._case))

    def _end_next(self) -> None:
        self._now_s = self._ends[0][0]
        while self._ends and self._ends[0][0] <= self._now_s:
            at_s, _, run = heapq.heappop(self._ends)
            if self._end_at.get(run) == at_s:
                del self._end_at[run]
                self._last_ended = run
                self._state.end(run)


def _is_leaving(run: Run) -> bool:
    return any(rank.state is RankState.YIELDING for rank in run.ranks)
