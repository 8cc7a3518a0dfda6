"""Processes that wait for the next call.

A process stays for moments only: the gateway knows whether it has another order for it, and lets it go otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from ...protocol.node import StartOrder
from ..supervisor.pair import Pair

log = logging.getLogger(__name__)
#: a gateway that says nothing for so long is gone, or being restarted
_LONGEST_S = 2.0
#: a supervisor that is told to end kills its rank; one that has not done so after this is in trouble itself
_END_S = 5.0


@dataclass
class _IdleProcess:
    pair: Pair
    #: the fork server that it comes from
    server: object
    limit: asyncio.TimerHandle


class IdleProcesses:
    """By the run that they carried out."""

    def __init__(self) -> None:
        self._stays: dict[str, _IdleProcess] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    def keep(self, run: str, pair: Pair, server: object) -> None:
        """The process of ``run`` waits for another order."""
        limit = asyncio.get_running_loop().call_later(_LONGEST_S, self._end, run)
        self._stays[run] = _IdleProcess(pair, server, limit)

    async def take(self, run: str, server: object) -> Pair | None:
        """The process of ``run``; None when there is none that ``server`` has forked."""
        stay = self._stays.get(run)
        if stay is None or stay.server is not server or not stay.pair.is_there:
            await self.let_go(run)
            return None
        del self._stays[run]
        stay.limit.cancel()
        return stay.pair

    async def let_go(self, run: str) -> None:
        """End the process of ``run``; returns when it is gone (at once when none stays)."""
        self._end(run)
        if run in self._ending:
            await asyncio.shield(self._ending[run])

    def _end(self, run: str) -> None:
        stay = self._stays.pop(run, None)
        if stay is not None:
            stay.limit.cancel()
            self._ending[run] = asyncio.ensure_future(_until_gone(run, stay.pair))
            self._ending[run].add_done_callback(lambda _: self._ending.pop(run, None))


async def _until_gone(run: str, pair: Pair) -> None:
    """There is nothing but supervisor and rank: else it would not have stayed."""
    with contextlib.suppress(OSError):
        pair.writer.write_eof()
    try:
        async with asyncio.timeout(_END_S):
            await pair.ended()
    except TimeoutError:
        await pair.end(run, log.error)
    pair.close()


_MOST_REFUSED = 64


class AssignedCalls:
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
