"""Times of past runs, and of earlier attempts of those that go on, as the ledger has them."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.runs import Attempt, RunView
from ...protocol.wire import decode
from .schema import COUNTED_S, attempts, runs

_PUT_ATTEMPT = upsert(attempts).on_conflict_do_nothing()
_IF_OVER = select(runs.c.view).where(runs.c.run == bindparam("key"), runs.c.finished_at.is_not(None))
_DROP_ATTEMPT = delete(attempts).where(attempts.c.run == bindparam("key"), attempts.c.number == bindparam("of"))


def past_runs(connection: Connection, count: int) -> list[RunView]:
    """The newest runs that are over and had GPUs or CPUs, the oldest of them first."""
    newest = (
        select(runs.c.view)
        .where(runs.c.finished_at.is_not(None), runs.c.granted_at.is_not(None))
        .order_by(runs.c.submitted_at.desc())
        .limit(count)
    )
    return [decode(view, RunView) for (view,) in reversed(connection.execute(newest).all())]


def put_attempt(connection: Connection, view: RunView, ended: Attempt) -> None:
    """Record an attempt that is over; ``view``: the run while it was its present one.

    Nothing happens where it was undone meanwhile: the run is over, with fewer attempts. Those that no sum of GPU-hours
    counts any more go: a run's own are in its view.
    """
    number = len(view.attempts)
    over = connection.execute(_IF_OVER, {"key": view.run}).scalar()
    if over is not None and len(decode(over, RunView).attempts) <= number:
        return
    values = {
        "run": view.run,
        "number": number,
        "user": view.user,
        "session": view.session,
        "gpus": view.gpus,
        "since": ended.granted_at,
        "running_at": ended.running_at,
        "until": ended.gone_at,
    }
    connection.execute(_PUT_ATTEMPT, values)
    connection.execute(delete(attempts).where(attempts.c.until < ended.gone_at - COUNTED_S))


def drop_attempt(connection: Connection, run: str, number: int) -> None:
    """Forget an attempt: the run itself is what it was."""
    connection.execute(_DROP_ATTEMPT, {"key": run, "of": number})
