"""Consolidate: restartable runs are moved together, so that a run fits which needs the scattered free GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..decisions import Start, Yield
from ..placement import suiting
from ..state import Job, State
from .allocate import asks_as
from .standing import movable, next_ones
from .victims import best_unit, make_room


def consolidate(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start | Yield]:
    """Serve each waiting restartable run once, in order; everything that is moved goes on running."""
    if not movable(state, now_s):
        return
    contest = next_ones(state, shares, now_s, lambda job: job.run.restartable)
    while (job := contest.pop()) is not None:
        decided = _move_others(state, job, now_s) if _is_scattered(state, job) else []
        yield from decided
        if decided:
            contest.again()
        else:
            contest.drop(asks_as(job))


def _move_others(state: State, job: Job, now_s: float) -> list[Start | Yield]:
    others = [other for other in movable(state, now_s) if other is not job]
    return make_room(state, job, others, best_unit, "consolidate", all_move=True)


def _is_scattered(state: State, job: Job) -> bool:
    """Tell if there is enough for the run in all, on nodes that suit it."""
    names = [name for group in suiting(state, job.run) for name in group.names]
    free = sum(max(0, state.nodes.room(name, soon=True)) for name in names)
    return free >= job.step_size * job.run.gpus_per_rank
