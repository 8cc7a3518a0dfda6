"""A pass: the policy's actions in turn over one working state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from .actions.allocate import allocate
from .actions.backfill import backfill
from .actions.consolidate import consolidate
from .actions.preempt import preempt
from .actions.reclaim import reclaim
from .decisions import Decision, Start, Wait, Yield
from .plugins import run_order
from .plugins.vetoes import cause
from .state import ClusterSnapshot, Job, State

Action = Callable[[State, Mapping[str, float], float], Iterable[Start | Yield]]

ACTIONS: dict[str, Action] = {
    "allocate": allocate,
    "backfill": backfill,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
}


def schedule(snapshot: ClusterSnapshot, now_s: float) -> list[Decision]:
    """Decide who starts, who steps aside and who waits, and why."""
    state = State(snapshot)
    decided = run_actions(state, now_s)
    return [*decided, *waits(state, now_s)]


def decide_on(state: State, now_s: float) -> list[Start | Yield]:
    """Decide on an index that is kept from pass to pass, which stays as it is: tell it what was carried out."""
    decided = run_actions(state, now_s)
    state.undo()
    return decided


def run_actions(state: State, now_s: float) -> list[Start | Yield]:
    """Run the actions; ``state`` is left as they would have it."""
    shares = state.shares()
    state.heads = []
    return [decision for name in state.policy.actions for decision in ACTIONS[name](state, shares, now_s)]


def waits(state: State, now_s: float) -> Iterator[Wait]:
    """Position and cause of each run that has not all that it needs."""
    key = run_order.keys(state, now_s)
    by_queue: dict[str, list[Job]] = {}
    for job in state.waiting():
        by_queue.setdefault(job.run.queue, []).append(job)
    for queue, jobs in by_queue.items():
        jobs.sort(key=lambda job: (key(job), job.ordinal))
        for position, job in enumerate(jobs, start=1):
            yield Wait(job.run.run, queue, position, cause(state, job))
