"""GPU-seconds of users: the cached account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.engine import Engine

from ..protocol.rest import Usage, UsageDay, UsageFacts
from .auth.permissions import Caller
from .db.usage import (
    SIGN_S,
    WEEK_S,
    capacity_seconds,
    put_capacity,
    put_sign_of_life,
    read_capacity,
    read_leases,
    usage_since,
)
from .db.warm_leases import warm_spans
from .db.writer import LedgerWriter

#: an account younger than this is shown as it is; one that takes long to read is read less often
_FRESH_S, _SHARE = 1.0, 0.02
#: pause between signs of life: what ran when the cluster ended is taken to have ended with the last one
_SIGN_EVERY_S = SIGN_S / 6


class UsageAccount:
    """The usage of everybody, read anew when somebody asks and it is old."""

    def __init__(self, engine: Engine, ledger: LedgerWriter) -> None:
        self._engine = engine
        self._ledger = ledger
        #: GPUs of the cluster, as last noted
        self._capacity: int | None = None
        self._sign_again_s = float("-inf")
        self._again_s = float("-inf")
        self._week: dict[str, Usage] = {}
        self._today: Mapping[str, Usage] = {}
        self._days: list[_Day] = []
        self._reading = asyncio.Lock()

    def note_capacity(self, gpus: int) -> None:
        """The cluster has so many GPUs now (called every few seconds)."""
        if gpus == self._capacity and time.monotonic() < self._sign_again_s:
            return
        self._capacity, self._sign_again_s = gpus, time.monotonic() + _SIGN_EVERY_S
        self._ledger.write(partial(put_sign_of_life, now_s=time.time()))
        self._ledger.write(partial(put_capacity, since=time.time(), gpus=gpus))

    async def usage_for(self, caller: Caller) -> UsageFacts:
        """The usage that the caller sees: the own and the team's; admins see everybody's."""
        async with self._reading:
            began_s = time.monotonic()
            if began_s > self._again_s:
                await asyncio.to_thread(self._read, time.time())
                now_s = time.monotonic()
                self._again_s = now_s + max(_FRESH_S, (now_s - began_s) / _SHARE)
        nothing = Usage()
        return UsageFacts(
            self._today.get(caller.user, nothing),
            self._week.get(caller.user, nothing),
            _sum(self._today),
            _sum(self._week),
            dict(self._week) if caller.is_admin else {},
            [day.seen_by(caller) for day in self._days],
        )

    def _read(self, now_s: float) -> None:
        with self._engine.connect() as connection:
            leases, ends = read_leases(connection, now_s - WEEK_S)
            kept = warm_spans(connection, now_s - WEEK_S)
            capacity = read_capacity(connection, now_s - WEEK_S)
        self._week = usage_since(leases, ends, now_s - WEEK_S, now_s, kept, capacity)
        midnights = last_midnights(now_s)
        spans = zip(midnights, [*midnights[1:], now_s], strict=True)
        self._days = [
            _Day(
                since_s,
                usage_since(leases, ends, since_s, until_s, kept, capacity),
                capacity_seconds(capacity, since_s, until_s),
            )
            for since_s, until_s in spans
        ]
        self._today = self._days[-1].users


@dataclass(frozen=True)
class _Day:
    """One day of everybody."""

    since_s: float
    users: Mapping[str, Usage]
    capacity_s: float

    def seen_by(self, caller: Caller) -> UsageDay:
        """The caller's own part of it, and the sum."""
        return UsageDay(self.since_s, self.users.get(caller.user, Usage()), _sum(self.users), self.capacity_s)


def last_midnights(now_s: float) -> list[float]:
    """The beginnings of the last seven days by this machine's clock, today's last (unix seconds)."""
    today = datetime.fromtimestamp(now_s).replace(hour=0, minute=0, second=0, microsecond=0)
    return [(today - timedelta(days=ago)).timestamp() for ago in range(6, -1, -1)]


def _sum(users: Mapping[str, Usage]) -> Usage:
    every = users.values()
    held, used, saved = sum(u.held_s for u in every), sum(u.used_s for u in every), sum(u.saved_s for u in every)
    return Usage(held, used, saved, sum(u.kept_s for u in every), sum(u.others_s for u in every))
