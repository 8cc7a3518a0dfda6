"""Consolidate: restartable runs are moved together, so that a run fits which needs the scattered free GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..contest import Contest
from ..decisions import Start, Yield
from ..placement import suits
from ..state import Job, State
from ..victims import best_unit, make_room, may_be_taken
from .standing import candidates


def consolidate(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start | Yield]:
    """Serve each waiting restartable run once, in order; everything that is moved goes on running."""
    contest = Contest(state, shares, [job for job in candidates(state) if job.run.restartable], now_s)
    while (job := contest.pop()) is not None:
        if _is_scattered(state, job):
            yield from _move_others(state, job, now_s)


def _move_others(state: State, job: Job, now_s: float) -> list[Start | Yield]:
    movable = [other for other in state.jobs.values() if may_be_taken(state, other, now_s)]
    return make_room(state, job, lambda: best_unit(movable), lambda: True, "consolidate", all_move=True)


def _is_scattered(state: State, job: Job) -> bool:
    """Tell if there is enough for the run in all, on nodes that suit it."""
    nodes = [node for node in state.nodes.values() if node.schedulable and suits(job.run, node)]
    free = sum(max(0, state.room(node.name, soon=True)) for node in nodes)
    return free >= len(job.step()) * job.run.gpus_per_rank
