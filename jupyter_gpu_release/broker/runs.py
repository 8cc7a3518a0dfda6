"""The gateway's runs: one record each, changed only through :meth:`RunTable.change`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import msgspec
from sqlalchemy.engine import Connection, Engine

from ..core.messages import Outcome, PersistWait, RunRequest, RunView
from ..core.resources import ResourceAsk
from ..core.run import RunState
from ..scheduling.snapshot import QueuedRun
from . import kinship, ledger, usage
from .journal import Journal, Write
from .leases import Lease
from .ledger import StoredRun
from .manifests import Manifests
from .tail import EventTail
from .waking import Waking

#: views of a run's earlier life may have been told that were not committed: newer ones must have a higher ``seq``
_SEQ_STEP = 1000
#: terminal runs kept in memory for late questions; older ones are read from the ledger
_KEPT_TERMINAL = 20
#: phases of a run on its node, in order
PHASES = {"": 0, "starting": 0, "running": 1, "ended": 2, "leaving": 3, "released": 4, "final": 5}


class Told(Enum):
    """When the followers of a run hear of a change."""

    NOW = "now"
    #: with the next change, which is expected within milliseconds; else a little later
    SOON = "soon"


class RunRecord(Waking):
    """A run in memory. ``view`` is what clients see; ``outcome`` is shown in it once the lease is gone."""

    def __init__(self, view: RunView, ordinal: int, request: RunRequest) -> None:
        super().__init__()
        self.view = view
        self.ordinal = ordinal
        #: without its payload once the run has been started
        self.request = request
        self.outcome: Outcome | None = None
        self.phase = 0
        self.lease: Lease | None = None
        self.tail = EventTail(view.run)
        #: another call of the same function waits, and the node knows
        self.is_followed = False
        #: its process is left, and takes the next call of the same function
        self.stays = False
        #: the run whose process it takes
        self.after = ""
        #: when its node began the next call on its lease, with no word from here
        self.handed_at: float | None = None
        #: node agents have accepted the order
        self.accepted = False
        #: how often it went back to the queue because its agent died before it began
        self.put_back = 0
        self.interrupts = 0
        #: ``interrupt`` or ``kill`` that its node has not been told yet
        self.signal = ""
        #: ids of the signals that came from its session
        self.signals: set[str] = set()
        #: ranks that have asked its kernel for names
        self.asking: set[int] = set()
        #: why somebody cancelled it, in words
        self.cancelled = ""
        #: it was ended by more than an interrupt from its own cell, so its GPUs are not kept for the next one
        self.is_given_up = False
        self.committed: asyncio.Future[None] | None = None
        #: the ledger knows the run (its insertion is queued at least)
        self.recorded = False
        self.starting: asyncio.Task[None] | None = None
        self.releasing: asyncio.Task[None] | None = None
        #: why its results are not durable yet, shown once the lease is gone
        self.waits_for: PersistWait | None = None
        self._queued: QueuedRun | None = None

    def drop_payload(self) -> None:
        """The node has the cell; the gateway needs it no more."""
        self.accepted = True
        self.request = msgspec.structs.replace(self.request, payload=b"")

    @property
    def run(self) -> str:
        """The run's id."""
        return self.view.run

    @property
    def series(self) -> str:
        """The function that it calls, of one process of one user; empty where it must have a process of its own.

        Calls of one may follow each other in one process.
        """
        request = self.request
        return f"{self.view.user}/{request.session}/{request.series}" if request.series else ""

    @property
    def state(self) -> RunState:
        """The run's state."""
        return RunState.of(self.view.state)

    @property
    def queued(self) -> QueuedRun:
        """The run as the scheduling policy sees it: the same record from one decision to the next."""
        request, view, known = self.request, self.view, self._queued
        if known is None or (known.session, known.detached) != (view.session, view.detached):
            known = self._queued = QueuedRun(
                run=self.run, ask=request.ask, ordinal=self.ordinal, submitted_at=view.submitted_at, user=view.user,
                wait_s=request.wait_s, session=view.session, detached=view.detached,
            )  # fmt: skip
        return known

    @classmethod
    def restored(cls, stored: StoredRun) -> RunRecord:
        """The record of a run that the ledger knows."""
        request = stored.request or _empty_request(stored.view)
        record = cls(stored.view, stored.ordinal, request)
        record.outcome = stored.outcome
        record.recorded = True
        record.tail.known = False
        record.waits_for = stored.view.waits_for
        if stored.outcome is not None and (stored.view.gone_at or record.state.is_terminal):
            record.view = msgspec.structs.replace(stored.view, outcome=stored.outcome)
        return record


def _insert(link: Connection, view: RunView, ordinal: int, request: RunRequest) -> None:
    ledger.insert_run(link, view, ordinal, request)
    kinship.put_submission(link, request)


def _update(link: Connection, view: RunView, outcome: Outcome | None) -> None:
    ledger.update_run(link, view, outcome)
    measured = outcome.gpu_use.mean_utilization if outcome is not None and outcome.gpu_use is not None else None
    if measured is not None:
        usage.put_use(link, view.run, measured)


def _both(first: Write, second: Write) -> Write:
    def write(connection: Connection) -> None:
        first(connection)
        second(connection)

    return write


def _empty_request(view: RunView) -> RunRequest:
    return RunRequest(view.run, view.session, ResourceAsk(view.gpus, view.ranks), b"")


class RunTable:
    """All live runs, the latest terminal ones, and through the ledger the rest."""

    def __init__(self, engine: Engine, journal: Journal, manifests: Manifests) -> None:
        self._engine = engine
        self._journal = journal
        self._manifests = manifests
        self._records: dict[str, RunRecord] = {}
        #: called after each change of what is shown of runs
        self.on_change: Callable[[], None] = lambda: None
        #: told of each run that is over
        self.on_end: Callable[[RunRecord], None] = lambda _record: None
        with engine.connect() as connection:
            self._ordinal = ledger.highest_ordinal(connection)

    def next_ordinal(self) -> int:
        """The place of the next submission."""
        self._ordinal += 1
        return self._ordinal

    def live(self) -> list[RunRecord]:
        """Runs that are not terminal, oldest first."""
        return [record for record in self._records.values() if not record.state.is_terminal]

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
                stored = ledger.find_run(connection, run)
            if stored is not None:
                record = self._keep(RunRecord.restored(stored))
        return record

    def reload(self, record: RunRecord) -> None:
        """The cell of a run that has been started once, from the ledger."""
        with self._engine.connect() as connection:
            stored = ledger.find_run(connection, record.run)
        if stored is not None and stored.request is not None:
            record.request = stored.request

    def add(self, record: RunRecord) -> None:
        """A new submission in memory; :meth:`record` commits it."""
        self._keep(record)
        self.on_change()

    def record(self, record: RunRecord) -> None:
        """Commit a new submission as it is by now (``record.committed``)."""
        view, ordinal, request = record.view, record.ordinal, record.request
        record.recorded = True
        record.committed = self._journal.put(lambda link: _insert(link, view, ordinal, request))

    def adopt(self, stored: StoredRun) -> RunRecord:
        """A run of the gateway's earlier life."""
        record = self._keep(RunRecord.restored(stored))
        record.view = msgspec.structs.replace(record.view, seq=record.view.seq + _SEQ_STEP)
        return record

    def drop(self, record: RunRecord) -> None:
        """Forget a submission that could not be committed."""
        self._records.pop(record.run, None)
        self.on_change()

    def move(self, record: RunRecord, position: int, reason: str) -> None:
        """A waiting run's new place. Each grant moves up all that wait, so followers hear of it a few times a second at
        most, the less often the further behind, and it is not committed: after a restart places are worked out anew.
        """
        view = record.view
        record.view = msgspec.structs.replace(view, seq=view.seq + 1, position=position, reason=reason)
        self.on_change()
        record.wake_later(position)

    def change(
        self,
        record: RunRecord,
        state: RunState | None = None,
        *,
        told: Told = Told.NOW,
        at_once: bool = False,
        also: Write | None = None,
        **facts: Any,
    ) -> asyncio.Future[None] | None:
        """Give the run a newer view, tell its followers, and commit it (the future: of a terminal state).

        ``at_once``: no agent could tell it again after a restart, so it is committed now. ``also``: what is true
        together with it, committed at once with it.
        """
        if state is not None:
            if not record.state.may_become(state):
                raise ValueError(f"run {record.run} cannot go from {record.state.word} to {state.word}")
            facts["state"] = state.word
        view = msgspec.structs.replace(record.view, seq=record.view.seq + 1, **facts)
        outcome = record.outcome
        record.view = view
        self.on_change()
        if told is Told.NOW:
            record.wake()
        else:
            record.wake_soon()
        done = self._commit(record, view, outcome, also, at_once=at_once, is_step=state is not None)
        if state is not None and state is not RunState.QUEUED:
            self._manifests.note(view, outcome, record.request)
        if record.state.is_terminal:
            self.on_end(record)
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
        """Ends, grants and results on their way are committed at once: the next cluster goes on with those, too.

        What agents can tell again after a restart may wait. A new state that the disk refuses is committed when it can
        be: a run that has ended would be lost with the next restart.
        """
        if not record.recorded:
            return None
        write: Write = partial(_update, view=view, outcome=outcome)
        again = write if is_step else None
        if also is not None:
            return self._journal.put(_both(write, also), replaces=view.run, again=again)
        values = outcome.values if outcome is not None and record.state is RunState.PERSISTING else None
        is_kept = values is not None and bool(values.file)
        if at_once or is_kept or record.state.is_terminal or record.state is RunState.STARTING:
            return self._journal.put(write, replaces=view.run, again=again)
        self._journal.later(view.run, write)
        return None

    def _keep(self, record: RunRecord) -> RunRecord:
        self._records[record.run] = record
        return record

    def _evict(self) -> None:
        idle = [r for r in self._records.values() if r.state.is_terminal and not r.watchers]
        for record in idle[: max(0, len(idle) - _KEPT_TERMINAL)]:
            del self._records[record.run]
