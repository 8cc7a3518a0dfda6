"""Warm leases in the ledger: by whom they are kept and until when, and for how long GPUs were kept."""

from __future__ import annotations

import msgspec
from sqlalchemy import bindparam, delete, func, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ..core.messages import decode, encode
from ..core.resources import ResourceAsk
from .schema import warm_leases, warm_times

_insert = upsert(warm_leases)
_PUT = _insert.on_conflict_do_update(index_elements=["lease"], set_={"kept": _insert.excluded.kept})
_DROP = delete(warm_leases).where(warm_leases.c.lease == bindparam("key"))


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a lease without a run is held: a kernel (its session) keeps it warm. Times are unix seconds."""

    user: str
    session: str
    since_s: float
    until_s: float
    auto: bool = False
    #: what it was granted for
    ask: ResourceAsk = ResourceAsk()
    notebook: str = ""
    cell: str = ""
    queue: str = "default"
    kernel: str = ""


def put_kept(connection: Connection, lease: str, kept: Kept) -> None:
    """Record (or replace) why a lease is kept."""
    connection.execute(_PUT, {"lease": lease, "kept": encode(kept)})


def all_kept(connection: Connection) -> dict[str, Kept]:
    """Lease → why it is kept."""
    return {row.lease: decode(row.kept, Kept) for row in connection.execute(select(warm_leases))}


def end_kept(connection: Connection, lease: str, run: str, gpus: int, kept: Kept, at_s: float, why: str) -> None:
    """The lease is warm no longer; the time for which it was is added to its user's."""
    connection.execute(_DROP, {"key": lease})
    facts = {"user": kept.user, "session": kept.session, "run": run, "gpus": gpus, "since": kept.since_s}
    connection.execute(insert(warm_times), facts | {"until": at_s, "ended_by": why})


def warm_gpu_seconds(connection: Connection) -> float:
    """GPU seconds for which GPUs were kept warm so far, by everybody together (what is warm now not counted)."""
    spans = (warm_times.c.until - warm_times.c.since) * warm_times.c.gpus
    return float(connection.execute(select(func.sum(spans))).scalar() or 0.0)
