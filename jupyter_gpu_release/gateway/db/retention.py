"""Statements about keeping results: which kernels hold which runs, what was used when, what went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...protocol.runs import RunView
from ...protocol.wire import decode
from .schema import cache_keys, cache_uses, holds, removals, runs, uses

#: so many runs are asked for in one statement
_AT_ONCE = 500

_insert_use = upsert(uses)
_LOADED = _insert_use.on_conflict_do_update(index_elements=["run"], set_={"loaded_at": _insert_use.excluded.loaded_at})
_REUSED = _insert_use.on_conflict_do_update(index_elements=["run"], set_={"reused_at": _insert_use.excluded.reused_at})
_HOLD = upsert(holds).on_conflict_do_nothing()
_UNHOLD = delete(holds).where(holds.c.session == bindparam("key"))
_REMOVE = upsert(removals).on_conflict_do_nothing()
#: what is of no use without the results; facts and links stay, so that lineage keeps answering
_REMOVED = [delete(table).where(table.c.run == bindparam("key")) for table in (removals, uses, cache_keys, cache_uses)]


@dataclass(frozen=True)
class LastUse:
    """The times when a run's results were last loaded by a kernel, and last taken by a later run (0: never)."""

    loaded_at: float = 0.0
    reused_at: float = 0.0


def all_holds(connection: Connection) -> dict[str, set[str]]:
    """By session, the runs of others that it holds."""
    found: dict[str, set[str]] = {}
    for row in connection.execute(select(holds)):
        found.setdefault(row.session, set()).add(row.run)
    return found


def put_hold(connection: Connection, session: str, run: str) -> None:
    """A session holds ``run`` from now on."""
    _execute(connection, _HOLD, session=session, run=run)


def drop_holds(connection: Connection, session: str) -> None:
    """A session holds nothing any more."""
    _execute(connection, _UNHOLD, key=session)


def put_load(connection: Connection, run: str, at_s: float) -> None:
    """The results of ``run`` were loaded."""
    _execute(connection, _LOADED, run=run, loaded_at=at_s, reused_at=0.0)


def put_reuse(connection: Connection, run: str, at_s: float) -> None:
    """The results of ``run`` were used for a later run."""
    _execute(connection, _REUSED, run=run, loaded_at=0.0, reused_at=at_s)


def _execute(connection: Connection, statement: object, **values: object) -> None:
    connection.execute(statement, values)  # type: ignore[call-overload]


def views_of(connection: Connection, names: Sequence[str]) -> dict[str, RunView]:
    """Those of these runs that the ledger knows, without their outcomes; it may know of many more."""
    found = {}
    for begin in range(0, len(names), _AT_ONCE):
        some = runs.c.run.in_(names[begin : begin + _AT_ONCE])
        for run, view in connection.execute(select(runs.c.run, runs.c.view).where(some)):
            found[run] = decode(view, RunView)
    return found


def all_uses(connection: Connection) -> dict[str, LastUse]:
    """The last uses of each run that was ever used."""
    return {row.run: LastUse(row.loaded_at, row.reused_at) for row in connection.execute(select(uses))}


def begin_removal(connection: Connection, run: str, reason: str, size: int, at_s: float) -> None:
    """From now on the results of ``run`` are gone, whatever is still on the store."""
    _execute(connection, _REMOVE, run=run, reason=reason, bytes=size, at=at_s, done=0)


def end_removal(connection: Connection, run: str) -> None:
    """Nothing is left of the results of ``run``: what only they gave a meaning goes, too."""
    for statement in _REMOVED:
        _execute(connection, statement, key=run)


def forget_removal(connection: Connection, run: str) -> None:
    """The results of ``run`` came back."""
    connection.execute(delete(removals).where(removals.c.run == run))


def unfinished_removals(connection: Connection) -> list[tuple[str, str]]:
    """Runs whose results are still to be deleted, with the reasons."""
    found = connection.execute(select(removals.c.run, removals.c.reason).where(removals.c.done == 0))
    return [(row.run, row.reason) for row in found]
