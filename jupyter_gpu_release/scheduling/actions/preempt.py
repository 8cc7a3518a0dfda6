"""Preempt: within a queue, a run of higher priority preempts those of lower priority."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..decisions import Preempt, Start
from ..state import Job, State
from .allocate import asks_as
from .victims import best_unit, make_room, movable, next_ones


def preempt(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start | Preempt]:
    """Serve each waiting run once, in order."""
    lowest: dict[str, int] = {}
    for other in movable(state, now_s):
        lowest[other.run.queue] = min(other.run.priority, lowest.get(other.run.queue, other.run.priority))
    if not lowest:
        return
    contest = next_ones(
        state, shares, now_s, lambda job: lowest.get(job.run.queue, job.run.priority) < job.run.priority
    )
    while (job := contest.pop()) is not None:
        decided = _preempt_for(state, job, now_s)
        yield from decided
        if decided:
            contest.again()
        else:
            contest.drop(_fails_like(job))


def _fails_like(job: Job) -> Callable[[Job], bool]:
    """Tell of others in the queue if they ask for the same with no higher priority."""
    asks = asks_as(job)
    return lambda other: other.run.queue == job.run.queue and other.run.priority <= job.run.priority and asks(other)


def _preempt_for(state: State, job: Job, now_s: float) -> list[Start | Preempt]:
    lower = [other for other in movable(state, now_s) if _is_below(state, other, job)]
    return make_room(state, job, lower, lambda jobs: best_unit(jobs, now_s), "preempt") if lower else []


def _is_below(state: State, other: Job, job: Job) -> bool:
    """Tell if a run has the lower priority in the queue of both (where that counts by user: of the same user)."""
    run = other.run
    if run.queue != job.run.queue or run.priority >= job.run.priority:
        return False
    return run.user == job.run.user or not state.tree.queues[run.queue].is_by_user
