"""Order of the runs of one queue."""

from __future__ import annotations

from collections.abc import Callable

from ..state import Job, State

#: lower goes first
Order = Callable[[State, Job, float], float]


def priority(state: State, job: Job, now_s: float) -> float:
    """The higher priority; of equal ones a run that has not all that it needs goes before one that grows."""
    return -job.run.priority + (0.5 if job.surplus >= 0 else 0.0)


def user_share(state: State, job: Job, now_s: float) -> float:
    """The user who has less of the queue, now and of late."""
    return state.users_share(job.run.queue, job.run.user)


def wait_over_expected_work(state: State, job: Job, now_s: float) -> float:
    """The run that has waited longer for the work that it is expected to be."""
    return -max(0.0, now_s - job.run.submitted_at) / state.expected_work(job.run)


def age(state: State, job: Job, now_s: float) -> float:
    """The older run."""
    return job.run.submitted_at


RUN_ORDERS: dict[str, Order] = {
    "priority": priority,
    "user_share": user_share,
    "wait_over_expected_work": wait_over_expected_work,
    "age": age,
}


def key(state: State, job: Job, now_s: float) -> tuple[float, ...]:
    """Sort key by all orders of the policy in turn; at last the order of submission."""
    return (*(RUN_ORDERS[name](state, job, now_s) for name in state.policy.run_order), job.ordinal)
