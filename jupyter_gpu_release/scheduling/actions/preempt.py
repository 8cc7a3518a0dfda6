"""Preempt: within a queue, a run of higher priority has those of lower priority step aside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..contest import Contest
from ..decisions import Start, Yield
from ..state import Job, State
from ..victims import best_unit, make_room, may_be_taken
from .standing import candidates


def preempt(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start | Yield]:
    """Serve each waiting run once, in order."""
    contest = Contest(state, shares, candidates(state), now_s)
    while (job := contest.pop()) is not None:
        yield from _preempt_for(state, job, now_s)


def _preempt_for(state: State, job: Job, now_s: float) -> list[Start | Yield]:
    lower = [
        other
        for other in state.jobs.values()
        if other.run.queue == job.run.queue
        and other.run.priority < job.run.priority
        and may_be_taken(state, other, now_s)
    ]
    if not lower:
        return []
    return make_room(state, job, lambda: best_unit(lower), lambda: True, "preempt")
