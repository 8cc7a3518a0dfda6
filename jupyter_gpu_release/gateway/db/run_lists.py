"""Lists of many runs: read from the ledger without the values that small outcomes carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import bindparam, case, func, select
from sqlalchemy.engine import Connection

from ...protocol.rest import Summary
from ...protocol.runs import RunView
from ...protocol.wire import decode
from .schema import READ_WHOLE_BYTES, runs, summaries, trials

_small = case((func.length(runs.c.outcome) <= READ_WHOLE_BYTES, runs.c.outcome), else_=None)
_NEWEST = (
    select(runs.c.run, runs.c.view, _small.label("outcome"), summaries.c.summary, func.length(runs.c.outcome))
    .select_from(runs.outerjoin(summaries, summaries.c.run == runs.c.run))
    .order_by(runs.c.submitted_at.desc())
    .limit(bindparam("count"))
)
_OF_SWEEP = _NEWEST.where(
    runs.c.run.in_(select(trials.c.run).where(trials.c.sweep.in_(bindparam("sweeps", expanding=True))))
)
_OF_SWEEP_OF_USER = _OF_SWEEP.where(runs.c.user == bindparam("user"))
_NEWEST_OF_USER = _NEWEST.where(runs.c.user == bindparam("user"))
_BRIEF = select(runs.c.view).order_by(runs.c.submitted_at.desc()).limit(bindparam("count"))
_BRIEF_OF_USER = _BRIEF.where(runs.c.user == bindparam("user"))
_WHOLE = select(runs.c.outcome).where(runs.c.run == bindparam("run"))


@dataclass(frozen=True)
class ListedRun:
    """A run as a list shows it."""

    view: RunView
    summary: Summary | None


def newest_views(connection: Connection, count: int, user: str | None) -> Iterator[ListedRun]:
    """Like :func:`newest_runs`, without what came out of them: no outcome is read."""
    values = {"count": count} if user is None else {"count": count, "user": user}
    decoder = msgspec.msgpack.Decoder(RunView)
    for (view,) in connection.execute(_BRIEF if user is None else _BRIEF_OF_USER, values):
        yield ListedRun(decoder.decode(view), None)


def runs_of_sweeps(connection: Connection, count: int, sweeps: Sequence[str], user: str | None) -> Iterator[ListedRun]:
    """The trials of sweeps, newest first, and the runs that drive them."""
    values: dict[str, Any] = {"count": count, "sweeps": list(sweeps)}
    if user is None:
        return _listed(connection, connection.execute(_OF_SWEEP, values))
    return _listed(connection, connection.execute(_OF_SWEEP_OF_USER, values | {"user": user}))


def newest_runs(connection: Connection, count: int, user: str | None) -> Iterator[ListedRun]:
    """The newest runs first, of one user or of all."""
    if user is None:
        rows = connection.execute(_NEWEST, {"count": count})
    else:
        rows = connection.execute(_NEWEST_OF_USER, {"count": count, "user": user})
    return _listed(connection, rows)


def _listed(connection: Connection, rows: Iterable[Any]) -> Iterator[ListedRun]:
    for run, view, small, kept, length in rows:
        found = small or kept
        if found is None and length is not None:  # written before there were summaries
            found = connection.execute(_WHOLE, {"run": run}).scalar()
        yield ListedRun(decode(view, RunView), None if found is None else decode(found, Summary))
