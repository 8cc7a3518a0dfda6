"""Rows and sums of GPU-seconds.

*held*: from a lease's grant to its end, times its GPUs. *used*: that times the mean use of the GPUs where it was
measured; else (simulated GPUs) the time since the first statement. *kept*: in warm leases. *saved*: what a kernel with
GPUs of its own would have kept from its first GPU cell to its end, or to 30 minutes after its last cell if that is
earlier, beyond what was held and kept; at each moment all together at most the GPUs of the cluster. *others*: how much
of that other users held at that moment.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, literal, or_, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.rest import Usage
from ...units import sum_gpus
from .database import read_meta, write_meta
from .rows import WarmSpan
from .schema import COUNTED_S, attempts, gpu_use, runs, session_ends, sessions
from .schema import capacity as capacity_table

WEEK_S = 7 * 86400.0
#: so long after its last cell a kernel with GPUs of its own is taken to have kept them
IDLE_KEPT_S = 1800.0
#: a cluster that gave no sign of life for longer was stopped; it gives one more often
ABSENT_S, SIGN_S = 150.0, 60.0
_SEEN = "cluster seen"
_insert_use = upsert(gpu_use)
_PUT_USE = _insert_use.on_conflict_do_update(index_elements=["run"], set_={"mean": _insert_use.excluded.mean})
_PUT_END = upsert(session_ends).on_conflict_do_nothing()
_ended_at = func.coalesce(runs.c.gone_at, runs.c.finished_at)


@dataclass(frozen=True)
class LeaseUse:
    """A lease of the past or one that goes on (``until`` None). Unix seconds; ``mean``: use from 0 to 1 if measured."""

    user: str
    session: str
    gpus: int
    since: float
    running_at: float | None
    until: float | None
    mean: float | None


def put_use(connection: Connection, run: str, mean: float) -> None:
    """Note how busy a run kept its GPUs."""
    connection.execute(_PUT_USE, {"run": run, "mean": mean})


def put_session_end(connection: Connection, session: str, ended_at: float) -> None:
    """Note when a kernel ended; older ends are forgotten once nothing counts them."""
    connection.execute(_PUT_END, {"session": session, "ended_at": ended_at})
    connection.execute(session_ends.delete().where(session_ends.c.ended_at < ended_at - COUNTED_S))


def put_capacity(connection: Connection, since: float, gpus: int) -> None:
    """Note how many GPUs the cluster has from now on; what nothing counts any more is forgotten."""
    known = read_capacity(connection, since)
    if not known or known[-1][1] != gpus:
        connection.execute(upsert(capacity_table).on_conflict_do_nothing(), {"since": since, "gpus": gpus})
    first = read_capacity(connection, since - COUNTED_S)
    connection.execute(capacity_table.delete().where(capacity_table.c.since < first[0][0]))


def put_sign_of_life(connection: Connection, now_s: float) -> None:
    """Note that the cluster is there. After a longer absence: that it had no GPUs since the last such note."""
    seen_s = last_sign_of_life(connection)
    if seen_s is not None and now_s - seen_s > ABSENT_S:
        known = read_capacity(connection, seen_s)
        last_s = known[-1][0] if known else 0.0
        put_capacity(connection, max(seen_s, last_s + 1e-3), 0)
    write_meta(connection, _SEEN, repr(now_s))


def last_sign_of_life(connection: Connection) -> float | None:
    """The last time (unix seconds) that the cluster is known to have been there; None: it never said so."""
    seen = read_meta(connection, _SEEN)
    return None if seen is None else float(seen)


def read_capacity(connection: Connection, since_s: float) -> list[tuple[float, int]]:
    """The GPUs that the cluster had at ``since_s``, and each change after it: (unix seconds, GPUs), by time."""
    column = capacity_table.c.since
    before = connection.execute(select(func.max(column)).where(column <= since_s)).scalar()
    rows = connection.execute(
        select(column, capacity_table.c.gpus).where(column >= (since_s if before is None else before)).order_by(column)
    )
    return [(row.since, row.gpus) for row in rows]


def usage_between(
    times_s: Sequence[float],
    leases: Iterable[LeaseUse],
    ends: Mapping[str, float],
    kept: Iterable[WarmSpan] = (),
    capacity: Sequence[tuple[float, int]] = (),
) -> list[dict[str, Usage]]:
    """User → GPU-seconds between each two of these times (rising; the last is now), of all in one pass.

    ``ends``: until when sessions were there (unknown: only between runs). ``capacity``: GPUs of the cluster from a
    time on, by time; empty: not known, and no limit.
    """
    steps = _Steps(times_s)
    leases, now_s = sorted(leases, key=lambda lease: lease.since), times_s[-1]
    for lease in leases:
        until_s = lease.until or now_s
        for sums, begin, end in steps.parts(lease.since, until_s):
            held_s = (end - begin) * lease.gpus
            mean_s = held_s * lease.mean if lease.mean is not None else _ran_s(lease, begin, end) * lease.gpus
            sums.held[lease.user] += held_s
            sums.used[lease.user] += mean_s
        steps.add(lease.since, until_s, lease.user, held=lease.gpus)
    for span in kept:
        for sums, begin, end in steps.parts(span.since, span.until or now_s):
            sums.warm[span.user] += (end - begin) * span.gpus
        steps.add(span.since, span.until or now_s, span.user, warm=span.gpus)
    for pause in _pauses(leases, ends, now_s):
        steps.add(pause.since, pause.until, pause.user, paused=pause.gpus)
    return [sums.by_user() for sums in steps.summed(capacity)]


def usages_together(usages: Iterable[Usage]) -> Usage:
    """The sum of several."""
    each = list(usages)
    return Usage(
        sum(usage.held_s for usage in each),
        sum(usage.used_s for usage in each),
        sum(usage.saved_s for usage in each),
        sum(usage.kept_s for usage in each),
        sum(usage.others_s for usage in each),
    )


@dataclass(frozen=True)
class _Pause:
    """A time in which a session held nothing, and a kernel with GPUs of its own would have kept them."""

    user: str
    gpus: int
    since: float
    until: float


def _pauses(leases: Iterable[LeaseUse], ends: Mapping[str, float], now_s: float) -> Iterator[_Pause]:
    """After each run of a session, up to its next one; after the last, until its end or for 30 minutes at most."""
    free_from: dict[str, tuple[float, int, str]] = {}
    for lease in leases:
        if not lease.session:
            continue
        end, before = min(lease.until or now_s, now_s), free_from.get(lease.session)
        if before is not None and lease.since > before[0]:
            yield _Pause(before[2], before[1], before[0], lease.since)
        if before is None or end >= before[0]:
            free_from[lease.session] = (end, lease.gpus, lease.user)
    for session, (freed_s, gpus, user) in free_from.items():
        yield _Pause(user, gpus, freed_s, min(ends.get(session, freed_s), freed_s + IDLE_KEPT_S))


class _Sums:
    """GPU-seconds by user, between two times."""

    def __init__(self) -> None:
        self.held: dict[str, float] = defaultdict(float)
        self.used: dict[str, float] = defaultdict(float)
        self.warm: dict[str, float] = defaultdict(float)
        self.saved: dict[str, float] = defaultdict(float)
        #: how much of these others used
        self.others: dict[str, float] = defaultdict(float)

    def by_user(self) -> dict[str, Usage]:
        return {
            user: Usage(self.held[user], self.used[user], self.saved[user], self.warm[user], self.others[user])
            for user in {**self.held, **self.warm, **self.saved}
        }


class _Steps:
    """GPUs by user as they change with time, and their sums between each two of some times."""

    def __init__(self, times_s: Sequence[float]) -> None:
        self._times_s = times_s
        self._since_s, self._now_s = times_s[0], times_s[-1]
        self._sums = [_Sums() for _ in times_s[1:]]
        self._changes: list[tuple[float, str, float, float, int]] = []

    def parts(self, since: float, until: float) -> Iterator[tuple[_Sums, float, float]]:
        """The parts of a time that lie between each two of the times, with the sums of these."""
        begin, until = max(since, self._since_s), min(until, self._now_s)
        place = bisect_right(self._times_s, begin) - 1
        while begin < until:
            end = min(until, self._times_s[place + 1])
            yield self._sums[place], begin, end
            begin, place = end, place + 1

    def add(self, since: float, until: float, user: str, *, held: float = 0, warm: float = 0, paused: int = 0) -> None:
        """GPUs of a user for a time."""
        if until > since:
            self._changes += [(since, user, held, warm, paused), (until, user, -held, -warm, -paused)]

    def summed(self, capacity: Sequence[tuple[float, int]]) -> list[_Sums]:
        """The sums, with the GPU-seconds saved."""
        now: dict[str, list[float]] = {}
        at_s = self._since_s
        steps = [(since, "", 0.0, 0.0, 0) for since, _ in capacity if self._since_s < since < self._now_s]
        for change_s, user, *changes in sorted(self._changes + steps):
            if change_s > at_s:
                saved, others = _saved_at_once(now, _capacity_at(capacity, at_s))
                for sums, begin, end in self.parts(at_s, change_s) if saved else ():
                    for each, gpus in saved.items():
                        sums.saved[each] += gpus * (end - begin)
                        sums.others[each] += others[each] * (end - begin)
                at_s = change_s
            gpus_now = [sum_gpus(pair) for pair in zip(now.get(user, [0, 0, 0]), changes, strict=True)]
            now[user] = gpus_now
            if not any(gpus_now):
                del now[user]
        return self._sums


def capacity_seconds(capacity: Sequence[tuple[float, int]], since_s: float, until_s: float) -> float:
    """GPU-seconds that the cluster could have given between two times; before the first that is known: none."""
    ends = [since for since, _ in capacity[1:]] + [math.inf]
    return sum(
        gpus * max(0.0, min(end, until_s) - max(since, since_s))
        for (since, gpus), end in zip(capacity, ends, strict=False)
    )


def _capacity_at(capacity: Sequence[tuple[float, int]], at_s: float) -> float:
    """GPUs of the cluster at a time; before the first that is known, the first."""
    if not capacity:
        return math.inf
    return capacity[max(0, bisect_right(capacity, (at_s, math.inf)) - 1)][1]


def _saved_at_once(now: Mapping[str, list[float]], capacity: float) -> tuple[dict[str, float], dict[str, float]]:
    """User → GPUs saved at one moment, all together at most those of the cluster; and of these, used by others."""
    held = sum_gpus(gpus for gpus, _, _ in now.values())
    # nodes may have gone meanwhile
    most = max(capacity, held + sum(warm for _, warm, _ in now.values()))
    saved = _at_most(most, {user: float(max(0, paused - warm)) for user, (_, warm, paused) in now.items()})
    others = {user: min(gpus, float(held - now[user][0])) for user, gpus in saved.items()}
    return saved, _at_most(held, others)


def _at_most(most: float, gpus: dict[str, float]) -> dict[str, float]:
    """The same in proportion, where it is more than that."""
    total = sum(gpus.values())
    return gpus if total <= most else {user: number * most / total for user, number in gpus.items()}


def _ran_s(lease: LeaseUse, begin: float, end: float) -> float:
    return 0.0 if lease.running_at is None else max(0.0, end - max(begin, lease.running_at))


def read_leases(connection: Connection, since_s: float) -> tuple[list[LeaseUse], dict[str, float]]:
    """Leases of runs that ended after ``since_s`` or go on or whose kernel may have lived on; and sessions' ends."""
    rows = connection.execute(
        select(
            runs.c.user, runs.c.session, runs.c.gpus, runs.c.granted_at, runs.c.running_at, _ended_at, gpu_use.c.mean
        )
        .select_from(runs.outerjoin(gpu_use, gpu_use.c.run == runs.c.run))
        .where(
            runs.c.granted_at.is_not(None),
            runs.c.gpus > 0,
            or_(runs.c.finished_at.is_(None), runs.c.finished_at > since_s - WEEK_S),
        )
    )
    earlier = connection.execute(
        select(
            attempts.c.user,
            attempts.c.session,
            attempts.c.gpus,
            attempts.c.since,
            attempts.c.running_at,
            attempts.c.until,
            literal(None),
        ).where(attempts.c.gpus > 0, attempts.c.until > since_s - WEEK_S)
    ).all()
    known = {row.session: row.ended_at for row in connection.execute(select(session_ends))}
    there = connection.execute(select(sessions.c.session, sessions.c.state, sessions.c.since))
    present = {row.session: float("inf") if row.state == "live" else row.since for row in there}
    return [LeaseUse(*row) for row in [*rows, *earlier]], present | known
