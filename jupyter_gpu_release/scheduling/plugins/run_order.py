"""Order of the runs of one queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from ..state import Job, State

#: the key of a run at this moment; lower goes first
Key = Callable[[Job], tuple[float, ...]]
Order = Callable[[State, float], Key]
_SHARE_STEP = 1 / 3


def priority(state: State, now_s: float) -> Key:
    """The higher priority; of equal ones a run that has not all that it needs goes before one that grows.

    Where priorities count among the runs of one user only, :func:`favourites` orders these afterwards.
    """
    by_user = {name for name, queue in state.tree.queues.items() if queue.is_by_user}
    return lambda job: (0 if job.run.queue in by_user else -job.run.priority, job.surplus >= 0)


def user_share(state: State, now_s: float) -> Key:
    """The user who has less, now and of late, in thirds of all GPUs.

    Not finer, because an order by exact shares would leave nothing to the orders after it, and they keep waits short.
    """
    part = max(1.0, _SHARE_STEP * state.nodes.total)
    return lambda job: (float(state.users_share(job.run.queue, job.run.user) // part),)


def wait_over_expected_work(state: State, now_s: float) -> Key:
    """The run that has waited longer for the work that it is expected to be."""
    rank, policy = state.run_times.rank, state.policy
    if policy.max_overtaking_s is None and policy.max_overtaking_factor is None:
        return lambda job: rank(job.run, now_s)

    def key(job: Job) -> tuple[float, ...]:
        late = now_s - job.run.submitted_at > _patience_s(state, job, now_s)
        return (0.0, job.run.submitted_at) if late else (1.0, *rank(job.run, now_s))

    return key


def _patience_s(state: State, job: Job, now_s: float) -> float:
    """Waiting time from which on a run is overtaken no longer."""
    expected_s = state.run_times.expected_s(job.run, now_s)
    if state.policy.max_overtaking_factor is None or expected_s is None:
        return float("inf") if state.policy.max_overtaking_s is None else state.policy.max_overtaking_s
    return state.policy.max_overtaking_factor * expected_s


def age(state: State, now_s: float) -> Key:
    """The older run."""
    return lambda job: (job.run.submitted_at,)


RUN_ORDERS: dict[str, Order] = {
    "priority": priority,
    "user_share": user_share,
    "wait_over_expected_work": wait_over_expected_work,
    "age": age,
}


def favourites(jobs: Sequence[Job]) -> list[Job]:
    """Runs in another order: each user's turns stay where they are, and go to the user's runs of highest priority."""
    turns: dict[str, list[Job]] = {}
    for job in jobs:
        turns.setdefault(job.run.user, []).append(job)
    ordered = {user: iter(sorted(own, key=lambda job: -job.run.priority)) for user, own in turns.items()}
    return [next(ordered[job.run.user]) for job in jobs]


#: orders that are the same for all waiting runs of one user and priority in a queue
_OF_A_USER = frozenset({"priority", "user_share"})


def first_keys(state: State, now_s: float) -> Callable[[Job], tuple[tuple[float, ...], ...]]:
    """First parts of :func:`keys`, as far as they are the same for all waiting runs of one user and priority."""
    names = takewhile(_OF_A_USER.__contains__, state.policy.run_order)
    parts = [RUN_ORDERS[name](state, now_s) for name in names]
    return lambda job: tuple([part(job) for part in parts])


def keys(state: State, now_s: float) -> Callable[[Job], tuple[tuple[float, ...], ...]]:
    """Sort keys by all orders of the policy in turn."""
    parts = [RUN_ORDERS[name](state, now_s) for name in state.policy.run_order]
    return lambda job: tuple([part(job) for part in parts])
