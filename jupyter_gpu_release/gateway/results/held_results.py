"""Kernels that hold results of runs, and when results were used."""

from __future__ import annotations

import time
from functools import partial

from sqlalchemy.engine import Engine

from ...protocol.runs import RunView
from ..db import retention
from ..db.writer import LedgerWriter
from ..runs.sessions import SessionTable


class ResultHolds:
    """Holds and uses, in memory and in the ledger."""

    def __init__(self, engine: Engine, ledger: LedgerWriter, sessions: SessionTable) -> None:
        self._ledger = ledger
        self._sessions = sessions
        with engine.connect() as connection:
            self._holds = retention.all_holds(connection)

    def hold_results(self, session: str, run: str) -> None:
        """A kernel attached or loaded ``run``: its results stay as long as that kernel's session."""
        held = self._holds.setdefault(session, set())
        if run not in held:
            held.add(run)
            self._ledger.write(partial(retention.put_hold, session=session, run=run))
        self.note_load(run)

    def note_load(self, run: str) -> None:
        """Somebody asked for the results of ``run`` just now."""
        self._ledger.write(partial(retention.put_load, run=run, at_s=time.time()))

    def note_reuse(self, run: str) -> None:
        """A later run was made from the results of ``run``, or took them as its own."""
        self._ledger.write(partial(retention.put_reuse, run=run, at_s=time.time()))

    def open_sessions(self) -> set[str]:
        """Sessions of kernels that are there, or may come back."""
        return self._sessions.open_ids()

    def held(self) -> set[str]:
        """Runs that sessions hold which have not ended; forgets the others."""
        there = self.open_sessions()
        for session in [session for session in self._holds if session not in there]:
            del self._holds[session]
            self._ledger.write(partial(retention.drop_holds, session=session))
        return {run for held in self._holds.values() for run in held}

    def is_held(self, view: RunView) -> bool:
        """Tell if a connected kernel submitted, attached or loaded the run."""
        return view.session in self.open_sessions() or view.run in self.held()
