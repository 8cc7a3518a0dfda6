"""Order of sibling queues, each with the run that would start next in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..state import State

Order = Callable[[State, Mapping[str, float], str, int], tuple[float, ...]]


def saturation(state: State, shares: Mapping[str, float], name: str, more: int = 0) -> float:
    """GPUs that a queue would have with ``more``, in parts of its share."""
    has = state.accounts[name].allocated + more
    if shares[name] <= 0:
        return float("inf") if has > 0 else 0.0
    return has / shares[name]


def priority(state: State, shares: Mapping[str, float], name: str, gpus: int) -> tuple[float, ...]:
    """The queue of higher priority; guarantees go before what is beyond them, where priorities differ at all."""
    if not state.has_priorities:
        return (0.0,)
    account = state.accounts[name]
    return (-account.queue.priority if account.allocated + gpus > account.guaranteed else float("-inf"),)


def fair_share(state: State, shares: Mapping[str, float], name: str, gpus: int) -> tuple[float, ...]:
    """The queue that would be least saturated with its run; on a tie the one that is without; then the smaller run."""
    used = int(state.accounts[name].usage)
    return saturation(state, shares, name, gpus + used), saturation(state, shares, name, used), float(gpus)


QUEUE_ORDERS: dict[str, Order] = {"priority": priority, "fair_share": fair_share}


def key(state: State, shares: Mapping[str, float], name: str, gpus: int) -> tuple[float, ...]:
    """Sort key by all orders of the policy in turn."""
    return tuple(part for order in state.policy.queue_order for part in QUEUE_ORDERS[order](state, shares, name, gpus))
