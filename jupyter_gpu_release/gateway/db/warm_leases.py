"""Warm leases in the ledger: by whom they are kept and until when, and for how long GPUs were kept."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.wire import decode, encode
from .database import put_lease
from .rows import StoredLease, WarmLeaseRow, WarmSpan
from .schema import COUNTED_S, warm_leases, warm_times

_insert = upsert(warm_leases)
_PUT = _insert.on_conflict_do_update(index_elements=["lease"], set_={"kept": _insert.excluded.kept})
_DROP = delete(warm_leases).where(warm_leases.c.lease == bindparam("key"))


def put_warm_lease(connection: Connection, lease: StoredLease, kept: WarmLeaseRow) -> None:
    """Record (or replace) a lease and why it is kept."""
    put_lease(connection, lease)
    connection.execute(_PUT, {"lease": lease.lease, "kept": encode(kept)})


def all_warm_leases(connection: Connection) -> dict[str, WarmLeaseRow]:
    """Lease → why it is kept."""
    return {row.lease: decode(row.kept, WarmLeaseRow) for row in connection.execute(select(warm_leases))}


def end_warm_lease(
    connection: Connection, lease: str, run: str, gpus: float, kept: WarmLeaseRow, at_s: float, why: str
) -> None:
    """The lease is warm no longer; the time for which it was is added to its user's."""
    connection.execute(_DROP, {"key": lease})
    facts = {"user": kept.user, "session": kept.session, "run": run, "gpus": gpus, "since": kept.since_s}
    connection.execute(insert(warm_times), facts | {"until": at_s, "ended_by": why})
    connection.execute(delete(warm_times).where(warm_times.c.until < at_s - COUNTED_S))


def warm_spans(connection: Connection, since_s: float) -> list[WarmSpan]:
    """Times for which GPUs were kept warm after ``since_s``, those that are kept now included."""
    columns = (warm_times.c.user, warm_times.c.gpus, warm_times.c.since, warm_times.c.until)
    past = connection.execute(select(*columns).where(warm_times.c.until > since_s))
    now = [WarmSpan(kept.user, kept.ask.gpus, kept.since_s, None) for kept in all_warm_leases(connection).values()]
    return [*(WarmSpan(*row) for row in past), *now]
