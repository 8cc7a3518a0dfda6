"""``RunRecord``: a run from its submission to its end, as the gateway keeps it in memory.

A run is in one *stage*, and each stage carries the facts that exist only while it lasts::

    Queued ──▶ Starting ──▶ Running ⇄ Preempting ──▶ Releasing ──▶ Persisting ──▶ Ended
      ▲            │                        ▲        │  └────────────│─────────────▲
      │            │                        │        │               │
      └────────────┘ (nothing has begun)    │        │               │
      └─────────────────────────────────────│────────┴───────────────┘ (it goes on later: see gateway/runs/attempts.py)
                                            └── from Starting, too: its start failed, or the run was lost

``Queued`` and ``Starting`` may end at once, when the run is cancelled. Of the stages clients see the word alone
(:class:`.RunState`), in the view. What leads from one to the next is decided in ``gateway/runs/machine.py``, on a
:class:`RunSnapshot`.

Everything here belongs to the gateway's event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from ...errors import RunCancelledError
from ...presentation.wording import reason_words
from ...protocol.node import AttemptId
from ...protocol.runs import Outcome, PersistWait, Preemption, Reason, ResourceAsk, RunRequest, RunView, Save
from ...protocol.states import RunState
from ...units import sum_gpus
from ..cluster.lease import Lease
from ..db.rows import StoredRun
from .events import ChangeNotifier, EventTail

#: views of a run's earlier lives may have been told that were not committed: newer ones must have a higher ``seq``.
#: At least by this; else by the clock, in microseconds: nothing changes as often
SEQ_STEP = 1000


# ------------------------------------------------------------------------------------------------ stages
@dataclass(frozen=True, slots=True)
class Queued:
    """It waits in the queue, or is on its way back there."""

    state: ClassVar[RunState] = RunState.QUEUED


@dataclass(frozen=True, slots=True)
class Starting:
    """It was granted a lease. Its node gets the order while Ray still makes that lease."""

    state: ClassVar[RunState] = RunState.STARTING
    #: None after a restart, until Ray and the nodes were asked
    lease: Lease | None
    #: the nodes have accepted their orders
    is_accepted: bool = False
    #: why its leader has forgotten it before all nodes had answered
    forgotten: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """Its cell has begun."""

    state: ClassVar[RunState] = RunState.RUNNING
    #: None after a restart, until Ray and the nodes were asked
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class Preempting:
    """It was preempted: it runs on to its next safe point, and is ended at the notice's deadline."""

    state: ClassVar[RunState] = RunState.YIELDING
    #: None after a restart, until Ray and the nodes were asked
    lease: Lease | None
    notice: Preemption
    #: its node is being told, or has taken it
    is_told: bool = False
    #: its node says that it cannot, and most often why, in another message
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Releasing:
    """Its last statement is done, or it was given up: the processes end, then the lease does."""

    state: ClassVar[RunState] = RunState.RELEASING
    lease: Lease | None
    #: None until its node says that all processes are gone: from then on the lease is being given back
    outcome: Outcome | None = None
    #: nothing more will be heard of the outcome: results are durable, or there are none
    is_final: bool = False
    #: why results are not durable yet
    wait: PersistWait | None = None
    #: when the lease was gone, of a run whose cluster is; None: when it is given back
    gone_at: float | None = None


@dataclass(frozen=True, slots=True)
class Persisting:
    """Its lease is gone, and its results are not durable yet."""

    state: ClassVar[RunState] = RunState.PERSISTING
    outcome: Outcome
    #: why they are not; None: that was not heard yet
    wait: PersistWait | None = None
    #: when the lease was gone, of a run that goes on: clients are not told, for them it has not ended
    gone_at: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """It is over. ``state`` is one of the terminal ones."""

    state: RunState
    #: None for a run of an earlier life of the gateway that left none
    outcome: Outcome | None


Stage = Queued | Starting | Running | Preempting | Releasing | Persisting | Ended


def _restored_stage(stored: StoredRun) -> Stage:
    """The stage in which the ledger knows a run: its lease and its order are found out from Ray and the nodes."""
    state, outcome = RunState.of(stored.view.state), stored.outcome
    if state.is_terminal:
        return Ended(state, outcome)
    match state:
        case RunState.STARTING:
            return Starting(None)
        case RunState.RUNNING:
            return Running(None)
        case RunState.YIELDING if stored.view.notice is not None:
            return Preempting(None, stored.view.notice)
        case RunState.RELEASING:
            return Releasing(None)
        case RunState.PERSISTING:
            return Persisting(outcome or Outcome(status="lost"), stored.view.waits_for)
        case _:
            return Queued()


# ---------------------------------------------------------------------------------------------- the run
@dataclass(frozen=True, slots=True)
class Cancellation:
    """The wishes of users, or of the gateway, that an attempt end."""

    #: why; empty: nobody has asked for it
    reason: str | Reason = ""
    interrupts: int = 0
    #: ``interrupt`` or ``kill`` that its node has not been told yet
    unsent: str = ""
    #: it was asked for more than an interrupt from its own cell, so its GPUs are not kept for the next one
    is_given_up: bool = False

    def error(self) -> RunCancelledError:
        """The error of a run that ends by it before its cell has begun."""
        return RunCancelledError(reason_words(self.reason))


@dataclass(frozen=True)
class RunSnapshot:
    """A run at one moment. ``view`` is what clients see, ``stage`` what the gateway knows of it just now."""

    view: RunView
    #: without its payload once the run has been started
    request: RunRequest
    stage: Stage = field(default_factory=Queued)
    cancellation: Cancellation = field(default_factory=Cancellation)
    #: its last save, from which it goes on
    save: Save | None = None
    #: how often it went back to the queue because its agent died before it began
    put_back: int = 0
    #: nobody is there for whom it could go on
    is_abandoned: bool = False
    #: a node of its that does not answer, as its user was told
    silent_node: str = ""
    #: attempt → the host that is to blame for its loss, and when. Only what this gateway has seen happen: what was
    #: found lost after it had been away says nothing of a host
    deaths: Mapping[int, tuple[str, float]] = field(default_factory=dict)

    def shown(self, stage: Stage | None = None, **facts: Any) -> RunSnapshot:
        """The run with a newer view, and in another stage."""
        if stage is not None:
            facts["state"] = stage.state.word
            if not isinstance(stage, Queued):
                facts["start"] = None
        if (reason := facts.get("reason")) is not None:
            facts |= {"reason": reason_words(reason), "cause": None if isinstance(reason, str) else reason}
        view = msgspec.structs.replace(self.view, seq=self.view.seq + 1, **facts)
        return replace(self, view=view, stage=self.stage if stage is None else stage)

    def shape_on(self, lease: Lease | None) -> dict[str, Any]:
        """GPUs and ranks that an elastic run has on a lease; None: those that it asks for. Nothing for any other."""
        ask = self.request.ask
        if ask.min_gpus is None:
            return {}
        gpus = ask.gpus if lease is None else sum_gpus(slot.gpus for slot in lease.slots)
        return {"gpus": gpus, "ranks": int(gpus * ask.ranks // ask.gpus)}

    def with_request(self, request: RunRequest) -> RunSnapshot:
        """The run with the request that the ledger has, in which an elastic run is one to its end."""
        loaded = replace(self, request=request)
        return loaded.of_fixed_size() if request.ask.min_gpus is not None and not self.view.most_gpus else loaded

    def of_fixed_size(self) -> RunSnapshot:
        """An elastic run that keeps the size that it has."""
        ask = msgspec.structs.replace(self.request.ask, gpus=self.view.gpus, ranks=self.view.ranks, min_gpus=None)
        return replace(self, request=msgspec.structs.replace(self.request, ask=ask))

    @property
    def attempt_id(self) -> AttemptId:
        """Its present attempt (of one that waits: the next), as the nodes know it."""
        return AttemptId(self.view.run, self.view.attempt)

    @property
    def lease(self) -> Lease | None:
        """The lease that it holds."""
        match self.stage:
            case Starting(lease=lease) | Running(lease=lease) | Preempting(lease=lease) | Releasing(lease=lease):
                return lease
            case _:
                return None

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once that is known; clients see it once the lease is gone."""
        match self.stage:
            case Releasing(outcome=outcome) | Persisting(outcome=outcome) | Ended(outcome=outcome):
                return outcome
            case _:
                return None

    @property
    def accepted(self) -> bool:
        """Tell if nodes have its order, and it is not over."""
        if isinstance(self.stage, Starting):
            return self.stage.is_accepted
        return not isinstance(self.stage, Queued | Ended)

    @property
    def may_be_asked(self) -> bool:
        """Tell if it may be preempted now."""
        can = self.view.restartable and not self.view.stays and not self.cancellation.reason
        return can and isinstance(self.stage, Running) and self.stage.lease is not None

    def expects(self, phase: str) -> bool:
        """Tell if this phase, reported by its node, is news: reports are repeated, and some come late."""
        match self.stage:
            case Starting():
                return phase in ("running", "ended", "released", "final")
            case Running() | Preempting():
                return phase in ("ended", "released", "final")
            case Releasing(outcome=None):
                return phase in ("released", "final")
            case Releasing(is_final=False) | Persisting():
                return phase == "final"
            case _:
                return False


class RunRecord(ChangeNotifier):
    """A run in memory: its :attr:`snapshot`, which changes, with its latest output and those who follow it."""

    def __init__(self, view: RunView, ordinal: int, request: RunRequest, stage: Stage | None = None) -> None:
        super().__init__()
        #: :meth:`.Lifecycle.hear` takes it from one to the next, :meth:`.RunTable.put` shows and commits it
        self.snapshot = RunSnapshot(view, request, Queued() if stage is None else stage)
        self.ordinal = ordinal
        self.tail = EventTail(view.run)
        #: ranks that have asked its kernel for names
        self.asking: set[int] = set()
        #: ids of the signals that came from its session
        self.signals: set[str] = set()
        #: done when the ledger has what no node could tell again: the submission, then the end of one that waited. None
        #: for a run that the ledger knew before this gateway did
        self.committed: asyncio.Future[None] | None = None
        #: the ledger knows the run (its insertion is queued at least)
        self.recorded = False
        #: it could not be preempted: the scheduler does not ask it again before this (monotonic seconds)
        self.spared_until_s = float("-inf")

    @property
    def refused_by_ledger(self) -> bool:
        """The ledger could not take the submission in: whoever sent it was told that there is no such run."""
        return self._commit_failed is True

    @property
    def may_be_told(self) -> bool:
        """Tell if the run is what it is also for the next gateway, should this one be killed."""
        return not self.state.is_terminal or self.committed is None or self._commit_failed is False

    @property
    def _commit_failed(self) -> bool | None:
        """None: its last commit goes on, or somebody has given it up."""
        if self.committed is None or not self.committed.done() or self.committed.cancelled():
            return None
        return self.committed.exception() is not None

    def amend_outcome(self, outcome: Outcome) -> None:
        """Change what is kept of the outcome of a run that is over: results that were removed, or came back."""
        if isinstance(self.stage, Ended):
            self.snapshot = replace(self.snapshot, stage=replace(self.stage, outcome=outcome))

    # --------------------------------------------------------------------------------------- its snapshot
    @property
    def view(self) -> RunView:
        """The run as clients see it."""
        return self.snapshot.view

    @view.setter
    def view(self, view: RunView) -> None:
        self.snapshot = replace(self.snapshot, view=view)

    @property
    def request(self) -> RunRequest:
        """The request, without its payload once the run has been started."""
        return self.snapshot.request

    @request.setter
    def request(self, request: RunRequest) -> None:
        self.snapshot = replace(self.snapshot, request=request)

    @property
    def stage(self) -> Stage:
        """The run's stage with its facts."""
        return self.snapshot.stage

    @property
    def cancellation(self) -> Cancellation:
        """The wishes that it end."""
        return self.snapshot.cancellation

    @property
    def save(self) -> Save | None:
        """Its last save, from which it goes on."""
        return self.snapshot.save

    @property
    def run(self) -> str:
        """The run's id."""
        return self.view.run

    @property
    def state(self) -> RunState:
        """The run's state, as clients see it."""
        return RunState.of(self.view.state)

    @property
    def may_be_taken(self) -> bool:
        """Tell if the scheduler may preempt it now."""
        return self.snapshot.may_be_asked and time.monotonic() >= self.spared_until_s

    @property
    def attempt(self) -> int:
        """The number of its present attempt."""
        return self.view.attempt

    @property
    def attempt_id(self) -> AttemptId:
        """Its present attempt, as the nodes know it."""
        return self.snapshot.attempt_id

    @property
    def lease(self) -> Lease | None:
        """The lease that it holds."""
        return self.snapshot.lease

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once that is known."""
        return self.snapshot.outcome

    @property
    def accepted(self) -> bool:
        """Tell if nodes have its order, and it is not over."""
        return self.snapshot.accepted

    @classmethod
    def restored(cls, stored: StoredRun) -> RunRecord:
        """The record of a run that the ledger knows."""
        request = stored.request or _empty_request(stored.view)
        record = cls(stored.view, stored.ordinal, request, _restored_stage(stored))
        record.recorded = True
        record.tail.known = False
        record.snapshot = record.snapshot.with_request(request)
        if stored.outcome is not None and (stored.view.gone_at or record.state.is_terminal):
            record.view = msgspec.structs.replace(stored.view, outcome=stored.outcome)
        return record


def _empty_request(view: RunView) -> RunRequest:
    return RunRequest(view.run, view.session, ResourceAsk(view.gpus, view.ranks), b"")
