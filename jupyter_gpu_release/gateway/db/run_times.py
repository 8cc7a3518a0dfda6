"""Times of past runs, and of earlier attempts of those that go on, as the ledger has them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.runs import Attempt, RunView
from .schema import attempts, runs

_OVER = func.coalesce(runs.c.gone_at, runs.c.finished_at)
_COLUMNS = (
    runs.c.run,
    runs.c.user,
    runs.c.queue,
    runs.c.gpus,
    runs.c.name,
    runs.c.notebook,
    runs.c.cell,
    runs.c.submitted_at,
    runs.c.granted_at,
    _OVER.label("gone_at"),
)

_PUT_ATTEMPT = upsert(attempts).on_conflict_do_nothing()
_DROP_ATTEMPT = delete(attempts).where(attempts.c.run == bindparam("key"), attempts.c.number == bindparam("of"))


@dataclass(frozen=True)
class PastRun:
    """A run that has held a lease. Unix seconds."""

    run: str
    user: str
    queue: str
    gpus: int
    name: str
    notebook: str
    cell: str
    submitted_at: float
    granted_at: float
    gone_at: float


def past_runs(connection: Connection, count: int) -> list[PastRun]:
    """The newest runs that are over and had GPUs or CPUs, the oldest of them first."""
    newest = (
        select(*_COLUMNS)
        .where(runs.c.finished_at.is_not(None), runs.c.granted_at.is_not(None))
        .order_by(runs.c.submitted_at.desc())
        .limit(count)
    )
    return [PastRun(*row) for row in reversed(connection.execute(newest).all())]


def put_attempt(connection: Connection, view: RunView, ended: Attempt) -> None:
    """Record an attempt that is over; ``view``: the run while it was its present one."""
    values = {
        "run": view.run,
        "number": len(view.attempts),
        "user": view.user,
        "session": view.session,
        "gpus": view.gpus,
        "since": ended.granted_at,
        "running_at": ended.running_at,
        "until": ended.gone_at,
    }
    connection.execute(_PUT_ATTEMPT, values)


def drop_attempt(connection: Connection, run: str, number: int) -> None:
    """Forget an attempt: the run itself is what it was."""
    connection.execute(_DROP_ATTEMPT, {"key": run, "of": number})
