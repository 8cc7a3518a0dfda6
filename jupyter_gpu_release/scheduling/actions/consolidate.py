"""Consolidate: restartable runs are moved together, so that a run fits which needs the scattered free GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..decisions import Preempt, Start
from ..placement import suiting
from ..state import Job, State
from .allocate import asks_as
from .elastic import MOVE_S
from .reservations import reserve
from .victims import Terms, best_unit, make_room, movable, next_ones

#: the wait that is taken for one whose end nobody knows
_UNKNOWN_WAIT_S = 3600.0


def consolidate(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start | Preempt]:
    """Serve each waiting run once, in order; everything that is moved goes on running.

    Only where less GPU time is lost by moving than would lie idle until the run fits by itself.
    """
    if not movable(state, now_s):
        return
    contest = next_ones(state, shares, now_s)
    while (job := contest.pop()) is not None:
        decided = _move_others(state, job, now_s) if _is_scattered(state, job) else []
        yield from decided
        if decided:
            contest.again()
        else:
            contest.drop(asks_as(job))


def _move_others(state: State, job: Job, now_s: float) -> list[Start | Preempt]:
    others = [other for other in movable(state, now_s) if other is not job]
    mark, gained = state.mark(), _gained_work(state, job, now_s)
    decided = make_room(state, job, others, lambda jobs: best_unit(jobs, now_s), "consolidate", Terms(all_move=True))
    if sum(_lost_work(state, each, now_s) for each in decided if isinstance(each, Preempt)) >= gained:
        state.undo(mark)
        return []
    return decided


def _gained_work(state: State, job: Job, now_s: float) -> float:
    """GPU-seconds (thousandths) that would lie idle until the run fits by itself."""
    reservation = reserve(state, job, suiting(state, job.run), now_s)
    known = reservation is not None and reservation.start_s > now_s
    wait_s = reservation.start_s - now_s if reservation is not None and known else _UNKNOWN_WAIT_S
    return wait_s * job.step_size * job.run.gpus_per_rank


def _lost_work(state: State, moved: Preempt, now_s: float) -> float:
    """GPU-seconds (thousandths) that moving these ranks costs: work that is not saved, and the move itself."""
    run = state.jobs[moved.run].run
    undone_s = 0.0 if run.saved_at is None else max(0.0, now_s - run.saved_at)
    return (undone_s + MOVE_S) * len(moved.ranks) * run.gpus_per_rank


def _is_scattered(state: State, job: Job) -> bool:
    """Tell if there is enough for the run in all, on nodes that suit it."""
    names = [name for group in suiting(state, job.run) for name in group.names]
    free = sum(max(0, state.nodes.room(name, soon=True)) for name in names)
    return free >= job.step_size * job.run.gpus_per_rank
