"""Calls of functions that the gateway has promised this node: they begin without another word from it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..core.node_messages import StartOrder

_MOST_REFUSED = 64


class PromisedCalls:
    """Each begins on the GPUs, and in the process if that stays, that a call of the same function leaves."""

    def __init__(self) -> None:
        self._orders: dict[str, StartOrder] = {}
        #: taken back before they came: what the gateway asks of an actor may arrive in another order
        self._refused: dict[str, None] = {}

    def add(self, order: StartOrder) -> None:
        """Promise one more."""
        if order.run in self._refused:
            del self._refused[order.run]
        else:
            self._orders[order.run] = order

    def drop(self, run: str) -> None:
        """It begins by the gateway's word."""
        self._orders.pop(run, None)

    def next_after(self, ended: StartOrder) -> StartOrder | None:
        """The call that takes over what ``ended`` leaves, ready to be carried out; it is promised no more."""
        fitting = [order for order in self._orders.values() if (order.series, order.gpus) == (ended.series, ended.gpus)]
        if not fitting or not ended.series:
            return None
        first = min(fitting, key=lambda order: order.ordinal)
        del self._orders[first.run]
        return msgspec.structs.replace(first, gpu_ids=ended.gpu_ids, after=ended.run)

    def withdraw(self, runs: Collection[str] | None) -> None:
        """Take promises back (all of them for None)."""
        for run in list(self._orders) if runs is None else runs:
            if self._orders.pop(run, None) is None:
                self._refused = {**dict(list(self._refused.items())[-_MOST_REFUSED:]), run: None}
