"""GPU-seconds of users and what their runs take of the store: the cached account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.engine import Engine

from ..host.background import LastLook
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
    usage_between,
    usages_together,
)
from .db.warm_leases import warm_spans
from .db.writer import LedgerWriter

#: an account younger than this is shown as it is
_FRESH_S = 1.0
#: pause between signs of life: what ran when the cluster ended is taken to have ended with the last one
_SIGN_EVERY_S = SIGN_S / 6


class UsageAccount:
    """The usage of everybody, of GPUs and of the store."""

    def __init__(self, engine: Engine, ledger: LedgerWriter, store_use: LastLook[Mapping[str, int] | None]) -> None:
        self._engine = engine
        self._ledger = ledger
        self._store_use = store_use
        #: GPUs of the cluster, as last noted
        self._capacity: int | None = None
        self._sign_again_s = float("-inf")
        self._account = LastLook(self._read, _FRESH_S, _Account())

    def note_capacity(self, gpus: int) -> None:
        """The cluster has so many GPUs now (called every few seconds)."""
        if gpus == self._capacity and time.monotonic() < self._sign_again_s:
            return
        self._capacity, self._sign_again_s = gpus, time.monotonic() + _SIGN_EVERY_S
        self._ledger.write(partial(put_sign_of_life, now_s=time.time()))
        self._ledger.write(partial(put_capacity, since=time.time(), gpus=gpus))

    async def usage_for(self, caller: Caller) -> UsageFacts:
        """The usage that the caller sees: the own and the team's; admins see everybody's."""
        account, nothing = await self._account.newest(), Usage()
        return UsageFacts(
            account.today.get(caller.user, nothing),
            account.week.get(caller.user, nothing),
            usages_together(account.today.values()),
            usages_together(account.week.values()),
            dict(account.week) if caller.is_admin else {},
            [day.seen_by(caller) for day in account.days],
            await self.stored_bytes(caller.user),
        )

    async def stored_bytes(self, user: str) -> int | None:
        """The bytes that a user's runs take of the store; None: nobody has looked yet."""
        found = await self._store_use.newest()
        return None if found is None else found.get(user, 0)

    async def _read(self) -> _Account:
        return await asyncio.to_thread(_read, self._engine, time.time())


@dataclass(frozen=True)
class _Account:
    """The GPU-seconds of everybody; ``days``: the last seven, today last."""

    week: Mapping[str, Usage] = field(default_factory=dict)
    days: Sequence[_Day] = ()

    @property
    def today(self) -> Mapping[str, Usage]:
        return self.days[-1].users if self.days else {}


def _read(engine: Engine, now_s: float) -> _Account:
    with engine.connect() as connection:
        leases, ends = read_leases(connection, now_s - WEEK_S)
        kept = warm_spans(connection, now_s - WEEK_S)
        capacity = read_capacity(connection, now_s - WEEK_S)
    midnights, week_s = last_midnights(now_s), now_s - WEEK_S
    times_s = sorted({week_s, *midnights, now_s})  # with a change of clocks a midnight may come before the week
    parts = list(zip(times_s, usage_between(times_s, leases, ends, kept, capacity), strict=False))
    days = [
        _Day(
            since_s,
            _joined(users for begin_s, users in parts if since_s <= begin_s < until_s),
            capacity_seconds(capacity, since_s, until_s),
        )
        for since_s, until_s in zip(midnights, [*midnights[1:], now_s], strict=True)
    ]
    return _Account(_joined(users for since_s, users in parts if since_s >= week_s), days)


@dataclass(frozen=True)
class _Day:
    """One day of everybody."""

    since_s: float
    users: Mapping[str, Usage]
    capacity_s: float

    def seen_by(self, caller: Caller) -> UsageDay:
        """The caller's own part of it, and the sum."""
        of_all = usages_together(self.users.values())
        return UsageDay(self.since_s, self.users.get(caller.user, Usage()), of_all, self.capacity_s)


def last_midnights(now_s: float) -> list[float]:
    """The beginnings of the last seven days by this machine's clock, today's last (unix seconds)."""
    today = datetime.fromtimestamp(now_s).replace(hour=0, minute=0, second=0, microsecond=0)
    return [(today - timedelta(days=ago)).timestamp() for ago in range(6, -1, -1)]


def _joined(parts: Iterable[Mapping[str, Usage]]) -> dict[str, Usage]:
    by_user: dict[str, list[Usage]] = {}
    for users in parts:
        for user, usage in users.items():
            by_user.setdefault(user, []).append(usage)
    return {user: usages_together(each) for user, each in by_user.items()}
