"""Elastic runs: those that cannot grow wait for all of their ranks where that ends sooner, others grow if it pays."""

from __future__ import annotations

from collections.abc import Sequence

from ..decisions import ForAll
from ..nodes import Group
from ..placement import avoided, rooms_for
from ..plugins.vetoes import veto
from ..state import Job, State
from .reservations import reserve

#: time that a run loses by being preempted and going on
MOVE_S = 30.0


def pays_to_grow(state: State, job: Job, now_s: float) -> bool:
    """Tell if a run that goes on with more ranks can end sooner, though it is preempted for that."""
    if job.run.run not in state.running or job.surplus < 0 or job.started_at is None:
        return True
    rest_s = state.run_times.remaining_s(job.run, job.started_at, now_s)
    return rest_s is None or rest_s * job.queued / (job.held + job.queued) > MOVE_S


def waits_for_all(state: State, job: Job, groups: Sequence[Group], now_s: float) -> bool:
    """Tell if a run would end later with the ranks that there is room for now than when it waits for all of them.

    A restartable one begins with what there is, and grows. Of one of which nobody knows how long it takes that is best,
    too.
    """
    run = job.run
    whole = len(run.ranks)
    if job.held or run.restartable or veto(state, job, whole):
        return False
    limits = dict.fromkeys(avoided(state, run, groups), 0)
    ranks = sum(rooms_for(state, run, groups, limits, soon=bool(state.nodes.awaiting)).values())
    lasts_s = state.run_times.expected_s(run, now_s) if run.min_ranks <= ranks < whole else None
    if lasts_s is None:
        return False
    later = reserve(state, job, groups, now_s, whole=True)
    if later is None or later.start_s <= now_s or later.start_s - now_s + lasts_s >= lasts_s * whole / ranks:
        return False
    state.for_all[run.run] = ForAll(whole * run.gpus_per_rank, ranks * run.gpus_per_rank)
    return True
