"""A pass: the policy's actions in turn over one working state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .actions.allocate import allocate
from .actions.backfill import backfill
from .actions.consolidate import consolidate
from .actions.preempt import preempt
from .actions.reclaim import reclaim
from .decisions import Cause, Coming, Decision, NeverFits, Preempt, Start, Wait
from .plugins import run_order
from .plugins.vetoes import cause
from .state import ClusterSnapshot, Job, State

Action = Callable[[State, Mapping[str, float], float], Iterable[Start | Preempt]]

ACTIONS: dict[str, Action] = {
    "allocate": allocate,
    "backfill": backfill,
    "consolidate": consolidate,
    "reclaim": reclaim,
    "preempt": preempt,
}
#: those that have nothing to do where no run that could be taken runs
_TAKING = frozenset({"consolidate", "reclaim", "preempt"})


def schedule(snapshot: ClusterSnapshot, now_s: float) -> list[Decision]:
    """Decide who starts, who is preempted and who waits, and why."""
    state = State(snapshot)
    decided = run_actions(state, now_s)
    return [*decided, *waits(state, now_s)]


def decide_on(state: State, now_s: float) -> list[Start | Preempt]:
    """Decide on an index that is kept from pass to pass, which stays as it is: tell it what was carried out."""
    decided = run_actions(state, now_s)
    state.undo()
    return decided


def run_actions(state: State, now_s: float) -> list[Start | Preempt]:
    """Run the actions; ``state`` is left as they would have it."""
    shares = state.shares()
    state.heads, state.blocked, state.for_all = [], {}, {}
    names = [name for name in state.policy.actions if state.takeable or name not in _TAKING]
    return [decision for name in names for decision in ACTIONS[name](state, shares, now_s)]


def waits(state: State, now_s: float, promised: Sequence[Job] = ()) -> Iterator[Wait]:
    """Position and cause of each run that has not all that it needs: first those for which GPUs are coming
    (``promised``), last those for which there is no node at all.
    """
    key = run_order.keys(state, now_s)
    by_queue: dict[str, list[tuple[tuple[object, ...], Job, Cause]]] = {}
    for job in promised:
        by_queue.setdefault(job.run.queue, []).append(((0, key(job), job.ordinal), job, Coming()))
    for job in state.waiting():
        why = cause(state, job)
        place = 2 if isinstance(why, NeverFits) else 1
        by_queue.setdefault(job.run.queue, []).append(((place, key(job), job.ordinal), job, why))
    for queue, found in by_queue.items():
        found.sort(key=lambda entry: entry[0])
        if state.tree.queues[queue].is_by_user:
            found = _by_priority(found)
        for position, (_, job, why) in enumerate(found, start=1):
            yield Wait(job.run.run, queue, position, why)


def _by_priority(found: list[tuple[tuple[object, ...], Job, Cause]]) -> list[tuple[tuple[object, ...], Job, Cause]]:
    entries = {job.run.run: (key, job, why) for key, job, why in found}
    return [entries[job.run.run] for job in run_order.favourites([job for _, job, _ in found])]
