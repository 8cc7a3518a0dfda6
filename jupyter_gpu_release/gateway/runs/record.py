"""``RunRecord``: one run's state, and who is told of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

import msgspec

from ...protocol.runs import Outcome, PersistWait, ResourceAsk, RunRequest, RunView
from ...protocol.states import RunState
from ...scheduling.snapshot import QueuedRun
from ..cluster.lease import Lease
from ..db.rows import StoredRun
from .events import EventTail

_SOON_S = 0.05
#: moves in the queue are told this late for each place, but within these bounds, and those of many runs together
_A_PLACE_S, _LEAST_S, _MOST_S, _TOGETHER_S = 0.1, 0.2, 2.0, 0.1


class ChangeNotifier:
    """A notifier that tells all waiting changes together, once, as soon as the first of them is due."""

    def __init__(self) -> None:
        #: called after each change and each batch of events
        self.watchers: set[Callable[[], None]] = set()
        self._due: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Tell everybody who follows this run."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        for watcher in list(self.watchers):
            watcher()

    def wake_soon(self) -> None:
        """Tell them in a moment, with what else changes until then."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + _SOON_S
        if self._due is None or self._due.when() > at_s:
            if self._due is not None:
                self._due.cancel()
            self._due = loop.call_at(at_s, self.wake)

    def wake_later(self, place: int) -> None:
        """Tell them in a while of their place in the queue, once for all changes until then."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            at_s = loop.time() + min(max(_LEAST_S, place * _A_PLACE_S), _MOST_S)
            self._due = loop.call_at(at_s + -at_s % _TOGETHER_S, self.wake)


#: views of a run's earlier life may have been told that were not committed: newer ones must have a higher ``seq``
SEQ_STEP = 1000
#: phases of a run on its node, in order
PHASES = {"": 0, "starting": 0, "running": 1, "ended": 2, "released": 3, "final": 4}


class NotifyWhen(Enum):
    """The moment when the followers of a run hear of a change."""

    NOW = "now"
    #: with the next change, which is expected within milliseconds; else a little later
    SOON = "soon"


class RunRecord(ChangeNotifier):
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


def _empty_request(view: RunView) -> RunRequest:
    return RunRequest(view.run, view.session, ResourceAsk(view.gpus, view.ranks), b"")
