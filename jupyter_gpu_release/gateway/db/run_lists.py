"""Lists of many runs: read from the ledger without the values that small outcomes carry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from sqlalchemy import bindparam, case, func, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.runs import FileInfo, Outcome, RunView, ValueInfo
from ...protocol.wire import decode, encode
from .schema import runs, summaries

#: larger outcomes (inline values, pickled exceptions) are not read for a list: what it shows of them is kept apart
_READ_WHOLE_BYTES = 4096
_small = case((func.length(runs.c.outcome) <= _READ_WHOLE_BYTES, runs.c.outcome), else_=None)
_NEWEST = (
    select(runs.c.run, runs.c.view, _small.label("outcome"), summaries.c.summary, func.length(runs.c.outcome))
    .select_from(runs.outerjoin(summaries, summaries.c.run == runs.c.run))
    .order_by(runs.c.submitted_at.desc())
    .limit(bindparam("count"))
)
_NEWEST_OF_USER = _NEWEST.where(runs.c.user == bindparam("user"))
_BRIEF = select(runs.c.view).order_by(runs.c.submitted_at.desc()).limit(bindparam("count"))
_BRIEF_OF_USER = _BRIEF.where(runs.c.user == bindparam("user"))
_WHOLE = select(runs.c.outcome).where(runs.c.run == bindparam("run"))
_insert = upsert(summaries)
_KEEP = _insert.on_conflict_do_update(index_elements=["run"], set_={"summary": _insert.excluded.summary})


class ErrorSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of :class:`.ErrorInfo` that lists show."""

    ename: str
    evalue: str
    code: str = ""
    hint: str = msgspec.field(default="", name="mend")


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of :class:`.Outcome` that lists show; decodes an outcome as well."""

    error: ErrorSummary | None = None
    results: list[ValueInfo] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    files: list[FileInfo] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class ListedRun:
    """A run as a list shows it."""

    view: RunView
    summary: Summary | None


def summary_of(outcome: Outcome) -> Summary:
    """The summary of ``outcome`` that lists show."""
    error = outcome.error
    shown = None if error is None else ErrorSummary(error.ename, error.evalue, error.code, error.hint)
    return Summary(shown, outcome.results, outcome.notes, outcome.files)


def keep_summary(connection: Connection, run: str, outcome: Outcome, encoded_bytes: int) -> None:
    """Record what lists show of an outcome that takes ``encoded_bytes`` (nothing for a small one)."""
    if encoded_bytes > _READ_WHOLE_BYTES:
        connection.execute(_KEEP, {"run": run, "summary": encode(summary_of(outcome))})


def newest_views(connection: Connection, count: int, user: str | None) -> Iterator[ListedRun]:
    """As :func:`newest_runs`, without what came out of them: no outcome is read."""
    values = {"count": count} if user is None else {"count": count, "user": user}
    decoder = msgspec.msgpack.Decoder(RunView)
    for (view,) in connection.execute(_BRIEF if user is None else _BRIEF_OF_USER, values):
        yield ListedRun(decoder.decode(view), None)


def newest_runs(connection: Connection, count: int, user: str | None) -> Iterator[ListedRun]:
    """The newest runs first, of one user or of all."""
    if user is None:
        rows = connection.execute(_NEWEST, {"count": count})
    else:
        rows = connection.execute(_NEWEST_OF_USER, {"count": count, "user": user})
    for run, view, small, kept, length in rows:
        found = small or kept
        if found is None and length is not None:  # written before there were summaries
            found = connection.execute(_WHOLE, {"run": run}).scalar()
        yield ListedRun(decode(view, RunView), None if found is None else decode(found, Summary))
