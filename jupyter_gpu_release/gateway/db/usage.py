"""Rows and sums of GPU-seconds.

*held*: from a lease's grant to its end, times its GPUs. *used*: that times the mean use of the GPUs where it was
measured; else (simulated GPUs) the time since the first statement. *saved*: how long the kernel lived on after a
run without its GPUs, up to its next run, times their number: what a kernel with GPUs of its own would have kept.
*kept*: what it did keep of that, in warm leases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.rest import Usage
from .rows import WarmSpan
from .schema import gpu_use, runs, session_ends, sessions

WEEK_S = 7 * 86400.0
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
    connection.execute(session_ends.delete().where(session_ends.c.ended_at < ended_at - 2 * WEEK_S))


def usage_since(
    leases: Iterable[LeaseUse], ends: Mapping[str, float], since_s: float, now_s: float, kept: Iterable[WarmSpan] = ()
) -> dict[str, Usage]:
    """User → GPU-seconds between two times. ``ends``: until when sessions were there (unknown: only between runs)."""
    found: dict[str, list[float]] = {}
    free_from: dict[str, tuple[float, int, str]] = {}
    for lease in sorted(leases, key=lambda lease: lease.since):
        sums = found.setdefault(lease.user, [0.0] * 4)
        begin, end = max(lease.since, since_s), min(lease.until or now_s, now_s)
        held_s = max(0.0, end - begin) * lease.gpus
        sums[0] += held_s
        sums[1] += held_s * lease.mean if lease.mean is not None else _ran_s(lease, begin, end) * lease.gpus
        if lease.session:
            before = free_from.get(lease.session)
            if before is not None:
                sums[2] += max(0.0, min(lease.since, now_s) - max(before[0], since_s)) * before[1]
            if before is None or end >= before[0]:
                free_from[lease.session] = (end, lease.gpus, lease.user)
    for session, (freed_s, gpus, user) in free_from.items():
        found[user][2] += max(0.0, min(ends.get(session, freed_s), now_s) - max(freed_s, since_s)) * gpus
    for span in kept:
        sums = found.setdefault(span.user, [0.0] * 4)
        kept_s = max(0.0, min(span.until or now_s, now_s) - max(span.since, since_s)) * span.gpus
        sums[2], sums[3] = max(0.0, sums[2] - kept_s), sums[3] + kept_s
    return {user: Usage(*sums) for user, sums in found.items()}


def _ran_s(lease: LeaseUse, begin: float, end: float) -> float:
    return 0.0 if lease.running_at is None else max(0.0, end - max(begin, lease.running_at))


def read_leases(connection: Connection, since_s: float) -> tuple[list[LeaseUse], dict[str, float]]:
    """Leases of runs that ended after ``since_s`` or go on or whose kernel may have lived on; and sessions' ends."""
    rows = connection.execute(
        select(
            runs.c.user, runs.c.session, runs.c.gpus, runs.c.granted_at, runs.c.running_at, _ended_at, gpu_use.c.mean
        )
        .select_from(runs.outerjoin(gpu_use, gpu_use.c.run == runs.c.run))
        .where(runs.c.granted_at.is_not(None), runs.c.gpus > 0, runs.c.submitted_at > since_s - WEEK_S)
    )
    known = {row.session: row.ended_at for row in connection.execute(select(session_ends))}
    there = connection.execute(select(sessions.c.session, sessions.c.state, sessions.c.since))
    present = {row.session: float("inf") if row.state == "live" else row.since for row in there}
    return [LeaseUse(*row) for row in rows], present | known
