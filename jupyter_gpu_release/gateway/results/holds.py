"""The ledger's facts about keeping results: which kernels hold which runs, what was used when, what went."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection, Engine

from ...protocol.runs import RunView
from ...protocol.wire import decode
from ..db.schema import holds, removals, runs, uses
from ..db.writer import LedgerWriter
from ..runs.sessions import SessionTable

#: a kernel that was not heard of for so long holds nothing any more
_LOST_S = 7 * 86400.0
_insert_use = upsert(uses)
_LOADED = _insert_use.on_conflict_do_update(index_elements=["run"], set_={"loaded_at": _insert_use.excluded.loaded_at})
_REUSED = _insert_use.on_conflict_do_update(index_elements=["run"], set_={"reused_at": _insert_use.excluded.reused_at})
_HOLD = upsert(holds).on_conflict_do_nothing()
_UNHOLD = delete(holds).where(holds.c.session == bindparam("key"))
_REMOVE = upsert(removals).on_conflict_do_nothing()
_REMOVED = update(removals).where(removals.c.run == bindparam("key")).values(done=1)


@dataclass(frozen=True)
class LastUse:
    """The times when a run's results were last loaded by a kernel, and last taken by a later run (0: never)."""

    loaded_at: float = 0.0
    reused_at: float = 0.0


class ResultHolds:
    """Holds and uses, in memory and in the ledger."""

    def __init__(self, engine: Engine, journal: LedgerWriter, sessions: SessionTable) -> None:
        self._journal = journal
        self._sessions = sessions
        self._holds: dict[str, set[str]] = {}
        with engine.connect() as connection:
            for row in connection.execute(select(holds)):
                self._holds.setdefault(row.session, set()).add(row.run)

    def hold(self, session: str, run: str) -> None:
        """A kernel attached or loaded ``run``: its results stay as long as that kernel's session."""
        held = self._holds.setdefault(session, set())
        if run not in held:
            held.add(run)
            self._journal.put(lambda link: _execute(link, _HOLD, session=session, run=run))
        self.note_load(run)

    def note_load(self, run: str) -> None:
        """Somebody asked for the results of ``run`` just now."""
        at_s = time.time()
        self._journal.put(lambda link: _execute(link, _LOADED, run=run, loaded_at=at_s, reused_at=0.0))

    def note_reuse(self, run: str) -> None:
        """A later run was made from the results of ``run``, or took them as its own."""
        at_s = time.time()
        self._journal.put(lambda link: _execute(link, _REUSED, run=run, loaded_at=0.0, reused_at=at_s))

    def open_sessions(self) -> set[str]:
        """Sessions of kernels that are there, or may come back."""
        return self._sessions.open_ids(time.time() - _LOST_S)

    def held(self) -> set[str]:
        """Runs that sessions hold which have not ended; forgets the others."""
        there = self.open_sessions()
        for session in [session for session in self._holds if session not in there]:
            del self._holds[session]
            self._journal.put(lambda link, key=session: _execute(link, _UNHOLD, key=key))  # type: ignore[misc]
        return {run for held in self._holds.values() for run in held}

    def is_held(self, view: RunView) -> bool:
        """Whether a connected kernel submitted, attached or loaded the run."""
        return view.session in self.open_sessions() or view.run in self.held()


def _execute(connection: Connection, statement: object, **values: object) -> None:
    connection.execute(statement, values)  # type: ignore[call-overload]


def all_views(connection: Connection) -> Iterable[RunView]:
    """Every run of the ledger, without its outcome."""
    return (decode(view, RunView) for (view,) in connection.execute(select(runs.c.view)))


def all_uses(connection: Connection) -> dict[str, LastUse]:
    """The last uses of each run that was ever used."""
    return {row.run: LastUse(row.loaded_at, row.reused_at) for row in connection.execute(select(uses))}


def begin_removal(connection: Connection, run: str, reason: str, size: int, at_s: float) -> None:
    """Treat the results of ``run`` as gone from now on, whatever is still on the store."""
    _execute(connection, _REMOVE, run=run, reason=reason, bytes=size, at=at_s, done=0)


def end_removal(connection: Connection, run: str) -> None:
    """Nothing is left of the results of ``run``."""
    _execute(connection, _REMOVED, key=run)


def forget_removal(connection: Connection, run: str) -> None:
    """The results of ``run`` came back."""
    connection.execute(delete(removals).where(removals.c.run == run))


def unfinished_removals(connection: Connection) -> list[tuple[str, str]]:
    """Runs whose results are still to be deleted, with the reasons."""
    found = connection.execute(select(removals.c.run, removals.c.reason).where(removals.c.done == 0))
    return [(row.run, row.reason) for row in found]
