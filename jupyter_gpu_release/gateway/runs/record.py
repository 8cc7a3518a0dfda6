"""``RunRecord``: a run from its submission to its end, as the gateway keeps it in memory.

A run is in one *stage*, and each stage carries the facts that exist only while it lasts::

    Queued ──▶ Starting ──▶ Running ⇄ Yielding ──▶ Releasing ──▶ Persisting ──▶ Ended
      ▲            │                        ▲        │  └────────────│─────────────▲
      │            │                        │        │               │
      └────────────┘ (nothing has begun)    │        │               │
      └─────────────────────────────────────│────────┴───────────────┘ (it goes on later: see gateway/runs/attempts.py)
                                            └── from Starting, too: its start failed, or the run was lost

``Queued`` and ``Starting`` may end at once, when the run is cancelled. Of the stages clients see the word alone
(:class:`.RunState`), in the view. :meth:`RunRecord.enter` is the only way from one to the next.

Everything here belongs to the gateway's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, assert_never

import msgspec

from ...protocol.node import AttemptId
from ...protocol.runs import Outcome, PersistWait, ResourceAsk, RunRequest, RunView, Save, StepAside
from ...protocol.states import RunState
from ..cluster.lease import Lease
from ..db.rows import StoredRun
from .events import ChangeNotifier, EventTail

log = logging.getLogger(__name__)
#: views of a run's earlier lives may have been told that were not committed: newer ones must have a higher ``seq``.
#: At least by this; else by the clock, in microseconds: nothing changes as often
SEQ_STEP = 1000


# ------------------------------------------------------------------------------------------------ stages
@dataclass(frozen=True, slots=True)
class Queued:
    """It waits in the queue, or is on its way back there."""

    state: ClassVar[RunState] = RunState.QUEUED


@dataclass(slots=True)
class Starting:
    """It was granted a lease. Its node gets the order while Ray still makes that lease."""

    state: ClassVar[RunState] = RunState.STARTING
    #: None while it is given back (the start failed), or after a restart, until Ray and the nodes were asked
    lease: Lease | None
    #: gives the nodes their orders; None after a restart
    order: asyncio.Task[None] | None = None
    #: the nodes have accepted it
    is_accepted: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """Its cell has begun."""

    state: ClassVar[RunState] = RunState.RUNNING
    #: None after a restart, until Ray and the nodes were asked
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class Yielding:
    """It was asked to step aside: it runs on to its next safe point, and is ended at the notice's deadline."""

    state: ClassVar[RunState] = RunState.YIELDING
    #: None after a restart, until Ray and the nodes were asked
    lease: Lease | None
    notice: StepAside


@dataclass(slots=True)
class Releasing:
    """Its last statement is done, or it was given up: the processes end, then the lease does."""

    state: ClassVar[RunState] = RunState.RELEASING
    #: None once :attr:`ending` has taken it
    lease: Lease | None
    #: None until its node says that all processes are gone
    outcome: Outcome | None = None
    #: nothing more will be heard of the outcome: results are durable, or there are none
    is_final: bool = False
    #: why results are not durable yet
    wait: PersistWait | None = None
    #: when the lease was gone, of a run whose cluster is; None: when it is given back
    gone_at: float | None = None
    #: gives the lease back, or to the next run, and then shows the outcome
    ending: asyncio.Task[None] | None = None


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


Stage = Queued | Starting | Running | Yielding | Releasing | Persisting | Ended


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
            return Yielding(None, stored.view.notice)
        case RunState.RELEASING:
            return Releasing(None)
        case RunState.PERSISTING:
            return Persisting(outcome or Outcome(status="lost"), stored.view.waits_for)
        case _:
            return Queued()


# ---------------------------------------------------------------------------------------------- the run
@dataclass(slots=True)
class Cancellation:
    """The wishes of users, or of the gateway, that a run end."""

    #: why, in words; empty: nobody has asked for it
    reason: str = ""
    interrupts: int = 0
    #: ``interrupt`` or ``kill`` that its node has not been told yet
    unsent: str = ""
    #: it was asked for more than an interrupt from its own cell, so its GPUs are not kept for the next one
    is_given_up: bool = False
    #: ids of the signals that came from its session
    signals: set[str] = field(default_factory=set)


class RunRecord(ChangeNotifier):
    """A run in memory. ``view`` is what clients see, ``stage`` what the gateway knows of it just now."""

    def __init__(self, view: RunView, ordinal: int, request: RunRequest, stage: Stage | None = None) -> None:
        super().__init__()
        self.view = view
        self.ordinal = ordinal
        #: without its payload once the run has been started
        self.request = request
        self._stage: Stage = Queued() if stage is None else stage
        self.tail = EventTail(view.run)
        self.cancellation = Cancellation()
        #: how often it went back to the queue because its agent died before it began
        self.put_back = 0
        #: ranks that have asked its kernel for names
        self.asking: set[int] = set()
        #: done when the ledger has the submission; None for a run that the ledger knew before this gateway did
        self.committed: asyncio.Future[None] | None = None
        #: the ledger knows the run (its insertion is queued at least)
        self.recorded = False
        #: its last save, from which it goes on
        self.save: Save | None = None
        #: nobody is there for whom it could go on
        self.is_abandoned = False
        #: it could not step aside: the scheduler does not ask it again before this (monotonic seconds)
        self.spared_until_s = float("-inf")
        #: attempt → the host that is to blame for its loss, and when. Only what this gateway has seen happen: what was
        #: found lost after it had been away says nothing of a host
        self.deaths: dict[int, tuple[str, float]] = {}

    @property
    def refused_by_ledger(self) -> bool:
        """The ledger could not take the submission in: whoever sent it was told that there is no such run."""
        committed = self.committed
        return (
            committed is not None
            and committed.done()
            and not committed.cancelled()
            and committed.exception() is not None
        )

    # ---------------------------------------------------------------------------------------- stages
    @property
    def stage(self) -> Stage:
        """The run's stage with its facts; :meth:`enter` changes it."""
        return self._stage

    def enter(self, stage: Stage) -> bool:
        """Go to a stage. One that cannot follow is refused: it is logged as our error, and nothing changes.

        :meth:`.RunTable.change` calls this, and shows and commits the stage: nobody else does.
        """
        if not self.stage.state.may_become(stage.state):
            log.error("run %s cannot go from %s to %s: refused", self.run, self.stage.state.word, stage.state.word)
            return False
        self._stage = stage
        return True

    def hold_lease(self, lease: Lease | None) -> None:
        """Have the lease of the run's earlier life, as Ray and the nodes tell it after a restart."""
        match self._stage:
            case Starting() | Releasing():
                self._stage.lease = lease
            case Running() | Yielding():
                self._stage = replace(self._stage, lease=lease)
            case Queued() | Persisting() | Ended():
                raise ValueError(f"run {self.run} holds no lease: it is {self.state.word}")
            case _:
                assert_never(self._stage)

    def shape_on(self, lease: Lease | None) -> dict[str, Any]:
        """GPUs and ranks that an elastic run has on a lease; None: those that it asks for. Nothing for any other."""
        ask = self.request.ask
        if ask.min_gpus is None:
            return {}
        gpus = ask.gpus if lease is None else sum(slot.gpus for slot in lease.slots)
        return {"gpus": gpus, "ranks": gpus * ask.ranks // ask.gpus}

    def load_request(self, request: RunRequest) -> None:
        """Take over what the ledger has, in which an elastic run is one to its end."""
        self.request = request
        if request.ask.min_gpus is not None and not self.view.most_gpus:
            self.fix_size()

    def fix_size(self) -> None:
        """Let an elastic run keep the size that it has."""
        size = {"gpus": self.view.gpus, "ranks": self.view.ranks, "min_gpus": None}
        self.request = msgspec.structs.replace(self.request, ask=msgspec.structs.replace(self.request.ask, **size))

    def begin_anew(self) -> None:
        """Forget what belongs to the attempt that is over."""
        self.put_back = 0
        self.asking.clear()
        self.cancellation = Cancellation(signals=self.cancellation.signals)

    def accept(self) -> None:
        """Its nodes have the order: the gateway needs the cell no more."""
        if isinstance(self._stage, Starting):
            self._stage.is_accepted = True
        self.request = msgspec.structs.replace(self.request, payload=b"")

    def note_death(self, host: str, at_s: float) -> None:
        """This attempt died of the infrastructure on ``host``; what is heard of it later is a consequence."""
        self.deaths.setdefault(self.attempt, (host, at_s))

    def wait_for(self, wait: PersistWait) -> None:
        """Note why its results are not durable yet."""
        match self._stage:
            case Releasing():
                self._stage.wait = wait
            case Persisting():
                self._stage = replace(self._stage, wait=wait)
            case _:  # its end was not heard yet, or it is over
                pass

    def amend_outcome(self, outcome: Outcome) -> None:
        """Change what is kept of the outcome of a run that is over: results that were removed, or came back."""
        if isinstance(self._stage, Ended):
            self._stage = replace(self._stage, outcome=outcome)

    # ------------------------------------------------------------------------- facts of several stages
    @property
    def run(self) -> str:
        """The run's id."""
        return self.view.run

    @property
    def state(self) -> RunState:
        """The run's state, as clients see it."""
        return RunState.of(self.view.state)

    @property
    def may_be_asked(self) -> bool:
        """Tell if it may be asked to step aside now."""
        can = self.view.restartable and not self.view.stays and not self.cancellation.reason
        return can and isinstance(self._stage, Running) and self._stage.lease is not None

    @property
    def may_be_taken(self) -> bool:
        """Tell if the scheduler may have it step aside now."""
        return self.may_be_asked and time.monotonic() >= self.spared_until_s

    @property
    def attempt(self) -> int:
        """The number of its present attempt."""
        return self.view.attempt

    @property
    def attempt_id(self) -> AttemptId:
        """Its present attempt (of one that waits: the next), as the nodes know it."""
        return AttemptId(self.run, self.attempt)

    @property
    def lease(self) -> Lease | None:
        """The lease that it holds."""
        match self._stage:
            case Starting(lease=lease) | Running(lease=lease) | Yielding(lease=lease) | Releasing(lease=lease):
                return lease
            case Queued() | Persisting() | Ended():
                return None
            case _:
                assert_never(self._stage)

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, once that is known; clients see it once the lease is gone."""
        match self._stage:
            case Releasing(outcome=outcome) | Persisting(outcome=outcome) | Ended(outcome=outcome):
                return outcome
            case Queued() | Starting() | Running() | Yielding():
                return None
            case _:
                assert_never(self._stage)

    @property
    def accepted(self) -> bool:
        """Tell if nodes have its order, and it is not over."""
        match self._stage:
            case Starting(is_accepted=is_accepted):
                return is_accepted
            case Running() | Yielding() | Releasing() | Persisting():
                return True
            case Queued() | Ended():
                return False
            case _:
                assert_never(self._stage)

    @property
    def is_ending(self) -> bool:
        """Tell if its lease is being given back, or is gone for good."""
        match self._stage:
            case Releasing(ending=ending):
                return ending is not None
            case Persisting() | Ended():
                return True
            case Queued() | Starting() | Running() | Yielding():
                return False
            case _:
                assert_never(self._stage)

    def expects(self, phase: str) -> bool:
        """Tell if this phase, reported by its node, is news: reports are repeated, and some come late."""
        match self._stage:
            case Starting():
                return phase in ("running", "ended", "released", "final")
            case Running() | Yielding():
                return phase in ("ended", "released", "final")
            case Releasing(outcome=None):
                return phase in ("released", "final")
            case Releasing(is_final=is_final):
                return phase == "final" and not is_final
            case Persisting():
                return phase == "final"
            case Queued() | Ended():
                return False
            case _:
                assert_never(self._stage)

    @classmethod
    def restored(cls, stored: StoredRun) -> RunRecord:
        """The record of a run that the ledger knows."""
        request = stored.request or _empty_request(stored.view)
        record = cls(stored.view, stored.ordinal, request, _restored_stage(stored))
        record.recorded = True
        record.tail.known = False
        record.load_request(request)
        if stored.outcome is not None and (stored.view.gone_at or record.state.is_terminal):
            record.view = msgspec.structs.replace(stored.view, outcome=stored.outcome)
        return record


def _empty_request(view: RunView) -> RunRequest:
    return RunRequest(view.run, view.session, ResourceAsk(view.gpus, view.ranks), b"")
