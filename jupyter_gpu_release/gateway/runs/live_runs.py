"""``RunTable``: live and recent runs."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Protocol

import msgspec
from sqlalchemy.engine import Connection, Engine

from ...protocol.node import AttemptId
from ...protocol.runs import Outcome, Reason, RunRequest, RunView, StartEstimate
from ...protocol.states import RunState
from ..db import database, lineage, usage
from ..db.rows import StoredRun
from ..db.writer import LedgerWriter, Write
from .events import NotifyWhen
from .manifests import Manifests
from .record import SEQ_STEP, Persisting, Queued, RunRecord, RunSnapshot

#: terminal runs kept in memory for late questions; older ones are read from the ledger
_KEPT_TERMINAL = 20


def _insert(link: Connection, view: RunView, ordinal: int, request: RunRequest) -> None:
    database.insert_run(link, view, ordinal, request)
    lineage.put_submission(link, request)


def _update(link: Connection, view: RunView, outcome: Outcome | None) -> None:
    database.update_run(link, view, outcome)
    measured = outcome.gpu_use.mean_utilization if outcome is not None and outcome.gpu_use is not None else None
    if measured is not None:
        usage.put_use(link, view.run, measured)


def _both(first: Write, second: Write) -> Write:
    def write(connection: Connection) -> None:
        first(connection)
        second(connection)

    return write


class RunListener(Protocol):
    """Hears of runs, on the gateway's event loop, in the middle of a change: it must neither wait nor raise."""

    def on_runs_changed(self) -> None:
        """Some run is shown differently from now on; called often."""

    def on_run_stage(self, record: RunRecord) -> None:
        """A run is in another stage than before."""

    def on_run_over(self, record: RunRecord) -> None:
        """A run is over, or what is kept of one that is over was changed."""


class RunTable:
    """All live runs, the latest terminal ones, and through the ledger the rest."""

    def __init__(self, engine: Engine, ledger: LedgerWriter, manifests: Manifests, listener: RunListener) -> None:
        self._engine = engine
        self._ledger = ledger
        self._manifests = manifests
        self._listener = listener
        self._records: dict[str, RunRecord] = {}
        #: those of them that are over, oldest first
        self._over: dict[str, RunRecord] = {}
        with engine.connect() as connection:
            self._ordinal = database.highest_ordinal(connection)

    def next_ordinal(self) -> int:
        """The place of the next submission."""
        self._ordinal += 1
        return self._ordinal

    def live(self) -> list[RunRecord]:
        """Runs that are not terminal, oldest first."""
        return [record for run, record in self._records.items() if run not in self._over]

    def in_memory(self) -> list[RunRecord]:
        """Live runs and the latest that are over."""
        return list(self._records.values())

    def get(self, run: str) -> RunRecord | None:
        """A run in memory."""
        return self._records.get(run)

    def find(self, run: str) -> RunRecord | None:
        """A run in memory or in the ledger."""
        record = self._records.get(run)
        if record is None:
            with self._engine.connect() as connection:
                stored = database.find_run(connection, run)
            if stored is not None:
                record = self._keep(RunRecord.restored(stored))
        return record

    def attempt_of(self, run: str) -> int:
        """The present attempt of a run; 0 of one that is not known."""
        record = self.find(run)
        return record.attempt if record is not None else 0

    def is_outdated(self, attempt_id: AttemptId) -> bool:
        """Tell if the run has a newer attempt, as far as the ledger knows."""
        return attempt_id.attempt < self.attempt_of(attempt_id.run)

    def is_over(self, attempt_id: AttemptId) -> bool:
        """Tell if nobody wants an attempt, as the ledger has it: its run is over, or not known, or has a newer one."""
        with self._engine.connect() as connection:
            stored = database.find_run(connection, attempt_id.run)
        if stored is None or RunState.of(stored.view.state).is_terminal:
            return True
        return attempt_id.attempt < stored.view.attempt

    def reloaded(self, snapshot: RunSnapshot) -> RunSnapshot:
        """A run that has been started once, with its cell from the ledger."""
        with self._engine.connect() as connection:
            stored = database.find_run(connection, snapshot.view.run)
        return snapshot if stored is None or stored.request is None else snapshot.with_request(stored.request)

    def add(self, record: RunRecord) -> None:
        """A new submission in memory; :meth:`record` commits it."""
        self._keep(record)
        self._listener.on_runs_changed()

    def record(self, record: RunRecord) -> None:
        """Commit a new submission as it is by now (``record.committed``)."""
        view, ordinal, request = record.view, record.ordinal, record.request
        record.recorded = True
        record.committed = self._ledger.write(lambda link: _insert(link, view, ordinal, request))

    def adopt(self, stored: StoredRun) -> RunRecord:
        """A run of the gateway's earlier life."""
        record = self._keep(RunRecord.restored(stored))
        seq = max(record.view.seq + SEQ_STEP, int(time.time() * 1e6))
        record.view = msgspec.structs.replace(record.view, seq=seq)
        return record

    def drop_run(self, record: RunRecord) -> None:
        """Forget a submission that could not be committed."""
        self._records.pop(record.run, None)
        self._over.pop(record.run, None)
        self._listener.on_runs_changed()

    def move(self, record: RunRecord, position: int, reason: str | Reason) -> None:
        """A waiting run's new place. Each grant moves up all that wait, so followers hear of it a few times a second at
        most, the less often the further behind, and it is not committed: after a restart places are worked out anew.
        """
        record.snapshot = record.snapshot.shown(position=position, reason=reason)
        self._listener.on_runs_changed()
        record.notify_later(position)

    def expect_start(self, record: RunRecord, start: StartEstimate | None) -> None:
        """A waiting run is expected to start at another time; told and kept as its moves are."""
        record.view = msgspec.structs.replace(record.view, seq=record.view.seq + 1, start=start)
        self._listener.on_runs_changed()
        record.notify_later(record.view.position or 1)

    def change(
        self, record: RunRecord, *, told: NotifyWhen = NotifyWhen.NOW, at_once: bool = False, **facts: Any
    ) -> asyncio.Future[None] | None:
        """Give the run a newer view; see :meth:`put`."""
        return self.put(record, record.snapshot.shown(**facts), told=told, at_once=at_once)

    def put(
        self,
        record: RunRecord,
        snapshot: RunSnapshot,
        *,
        told: NotifyWhen = NotifyWhen.NOW,
        at_once: bool = False,
        also: Write | None = None,
    ) -> asyncio.Future[None] | None:
        """Take over what a run is now, tell its followers, and commit it (the future: of a terminal state).

        ``at_once``: no agent could tell it again after a restart, so it is committed now. ``also``: what is true
        together with it, committed at once with it.
        """
        is_step, has_waited = snapshot.stage.state is not record.stage.state, isinstance(record.stage, Queued)
        record.snapshot = snapshot
        view, outcome = record.view, record.outcome
        if record.state.is_terminal and record.run in self._records:
            self._over[record.run] = record
        self._listener.on_runs_changed()
        if told is NotifyWhen.NOW:
            record.notify()
        else:
            record.notify_soon()
        done = self._commit(record, view, outcome, also, at_once=at_once, is_step=is_step)
        if has_waited and record.state.is_terminal and done is not None:
            record.committed = done
            done.add_done_callback(lambda _: record.notify())
        if is_step and not isinstance(snapshot.stage, Queued):
            self._manifests.write_manifest(view, outcome, record.request)
        if is_step:
            self._listener.on_run_stage(record)
        if record.state.is_terminal:
            self._listener.on_run_over(record)
            self._evict()
        return done

    def _commit(
        self,
        record: RunRecord,
        view: RunView,
        outcome: Outcome | None,
        also: Write | None,
        *,
        at_once: bool,
        is_step: bool,
    ) -> asyncio.Future[None] | None:
        """Ends and results on their way are committed at once: the next cluster goes on with those, too.

        What agents can tell again after a restart may wait. A new state that the disk refuses is committed when it can
        be, with what is true together with it: a run that has ended would be lost with the next restart. By then newer
        ones may be committed: none of these writes puts anything older in the place of what is newer.
        """
        if not record.recorded:
            return None
        write: Write = partial(_update, view=view, outcome=outcome)
        if also is not None:
            write = _both(write, also)
        values = outcome.values if outcome is not None and isinstance(record.stage, Persisting) else None
        is_kept = values is not None and bool(values.file)
        if also is not None or at_once or is_kept or record.state.is_terminal:
            return self._ledger.write(write, replaces=view.run, again=write if is_step else None)
        self._ledger.write_later(view.run, write)
        return None

    def _keep(self, record: RunRecord) -> RunRecord:
        self._records[record.run] = record
        if record.state.is_terminal:
            self._over[record.run] = record
        return record

    def _evict(self) -> None:
        """Leave the latest that are over, and those that somebody follows, in memory."""
        idle = [record.run for record in self._over.values() if not record.watchers]
        for run in idle[: max(0, len(idle) - _KEPT_TERMINAL)]:
            del self._records[run], self._over[run]
