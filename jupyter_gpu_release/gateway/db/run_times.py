"""Times of past runs, as the ledger has them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from .schema import runs

_OVER = func.coalesce(runs.c.gone_at, runs.c.finished_at)
_COLUMNS = (
    runs.c.run, runs.c.user, runs.c.queue, runs.c.gpus, runs.c.name, runs.c.notebook, runs.c.cell,
    runs.c.submitted_at, runs.c.granted_at, _OVER.label("gone_at"),
)  # fmt: skip


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
