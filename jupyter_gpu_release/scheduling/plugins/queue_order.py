"""Order of sibling queues, each with the run that would start next in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..state import State

#: ``kind``: the type of GPU that the run needs, where queues are guaranteed GPUs by type
Order = Callable[[State, Mapping[str, float], str, int, str | None], tuple[float, ...]]


def saturation(state: State, shares: Mapping[str, float], name: str, kind: str | None) -> float:
    """GPUs that a queue has, in parts of its share."""
    return _part(state.account(name, kind).allocated, state.share(shares, name, kind))


def _part(has: int, share: float) -> float:
    if share <= 0:
        return float("inf") if has > 0 else 0.0
    return has / share


def priority(state: State, shares: Mapping[str, float], name: str, gpus: int, kind: str | None) -> tuple[float, ...]:
    """The queue of higher priority; guarantees go before what is beyond them, where priorities differ at all."""
    if not state.has_priorities:
        return (0.0,)
    account = state.account(name, kind)
    return (-account.queue.priority if account.allocated + gpus > account.guaranteed else float("-inf"),)


def fair_share(state: State, shares: Mapping[str, float], name: str, gpus: int, kind: str | None) -> tuple[float, ...]:
    """The queue that would be least saturated with its run; on a tie the one that is without; then the smaller run."""
    if kind is None:
        account, share = state.accounts[name], shares[name]
    else:
        account, share = state.account(name, kind), state.share(shares, name, kind)
    has = account.allocated + int(account.usage)
    return _part(has + gpus, share), _part(has, share), float(gpus)


QUEUE_ORDERS: dict[str, Order] = {"priority": priority, "fair_share": fair_share}


def key(state: State, shares: Mapping[str, float], name: str, gpus: int, kind: str | None = None) -> tuple[float, ...]:
    """Sort key by all orders of the policy in turn."""
    orders = [QUEUE_ORDERS[order] for order in state.policy.queue_order]
    return tuple(part for order in orders for part in order(state, shares, name, gpus, kind))
