"""The life of a run: :func:`step` takes in what has happened to it, and says what it is now and what is to be done.

Pure and total. *Events* come from the queue, users, nodes, reconciliation, and from effects that have been carried out.
Those of an attempt bear its id: one of another attempt changes nothing. An event that its stage does not expect is
answered by :class:`Refused`. *Effects* are what Ray, nodes, ledger and queue have to do about it:
``gateway/dispatch/lifecycle.py`` carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ...errors import ConflictError, GpuReleaseError
from ...protocol.node import AttemptId, NodeRun, RunPhase, RunSaved, RunStays, RunUnbegun, RunWaits
from ...protocol.runs import Attempt, KeptLease, Outcome, PersistWait, Preemption, Reason, Save
from ..cluster.lease import Lease
from .attempts import brought_home, ended_attempt, ended_by_cancel, failed_host, goes_on, save_of
from .outcomes import final_reason, final_state, gone_facts, is_lost, lost, lost_results, merged, unstarted
from .record import (
    Cancellation,
    Ended,
    Persisting,
    Preempting,
    Queued,
    Releasing,
    Running,
    RunSnapshot,
    Stage,
    Starting,
)

#: why a run is cancelled whose own cell was interrupted
INTERRUPTED = "interrupted"
#: a run whose agent dies each time before it begins may be the reason
_MOST_PUT_BACK = 3
#: phases of a run in which its cell may still use the GPUs
_HOLDS_GPUS = ("starting", "running", "ended")


# ------------------------------------------------------------------------------------------------ events
@dataclass(frozen=True, slots=True)
class Granted:
    """The queue has given it GPUs."""

    lease: Lease
    #: hosts, and accelerators where they are known
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unstarted:
    """It has waited for too long, or the queue itself failed at it; ``lease``: the one that it was given, if any."""

    error: GpuReleaseError
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Somebody wants it ended: at once while it waits, else by an interrupt. The second one (or ``kill``) kills.

    ``gives_up``: its notebook does not go on from here, so its GPUs are not kept for that.
    """

    reason: str | Reason
    kill: bool = False
    gives_up: bool = True


@dataclass(frozen=True, slots=True)
class Preempt:
    """It is preempted."""

    notice: Preemption
    reason: str | Reason


@dataclass(frozen=True, slots=True)
class Accepted:
    """All its nodes have their orders."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Its nodes could not be given their orders, or Ray did not make the lease."""

    attempt_id: AttemptId
    error: GpuReleaseError
    #: another start would fail in the same way
    is_final: bool = False
    #: None: its node has not been asked
    has_begun: bool | None = None
    #: the host whose agent died over it
    died_on: str = ""
    #: it is tried again when the store answers
    until_store: bool = False


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Its node is ahead of what was heard, from a time when this gateway was away: that counts against no node."""

    phase: RunPhase

    @property
    def attempt_id(self) -> AttemptId:
        """The attempt that its node speaks of."""
        return self.phase.attempt_id


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """Its lease is another run's, is kept, or was given back at ``at_s``. ``note``: Ray has not said so yet."""

    attempt_id: AttemptId
    at_s: float | None
    kept: KeptLease | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class NoticeDue:
    """A look at a run that was preempted. ``is_needed``: somebody still waits for its GPUs."""

    attempt_id: AttemptId
    is_needed: bool


@dataclass(frozen=True, slots=True)
class NoticeHeard:
    """Its node has taken the notice, or says that the run cannot be preempted. None: the node did not answer."""

    attempt_id: AttemptId
    is_taken: bool | None


@dataclass(frozen=True, slots=True)
class Unheard:
    """A signal did not reach its node."""

    attempt_id: AttemptId
    name: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The agent that had it does not know it: that was restarted, or lost ranks of a gang before it began."""

    attempt_id: AttemptId
    #: why it waits again, where it had not begun, and why it is lost otherwise
    reason: str
    lost: str
    died_on: str = ""
    #: None: the mark on its node has not been looked for
    has_begun: bool | None = None
    #: where small results may be kept that the agent did not come to write
    node: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """Its process, agent, node or cluster is gone. One that had ended before loses its results at most."""

    attempt_id: AttemptId
    reason: str
    #: the host that is to blame; empty: none is, as far as anybody knows
    died_on: str = ""
    #: when its GPUs were gone; None: when they are given back
    at_s: float | None = None
    #: its results are on the store; None: nobody has looked
    has_values: bool | None = None
    #: its nodes may have something of it, and are told to end that
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """A node of its does not answer."""

    node: str
    text: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A node of its answers."""

    node: str


@dataclass(frozen=True, slots=True)
class Warned:
    """A node of its is about to end; without ``text`` it stays."""

    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Its results are not waited for any more, as soon as its nodes have dropped them."""

    reason: str | Reason


@dataclass(frozen=True, slots=True)
class Unkept:
    """No node that is there keeps its results."""


@dataclass(frozen=True, slots=True)
class Found:
    """Facts that a gateway that was started found of a run of its earlier life."""

    attempt_id: AttemptId
    #: the lease that Ray still has, and its hosts and accelerators
    lease: Lease | None
    hosts: list[str]
    gpu_ids: list[str]
    #: why it is lost, should it be
    why: str
    #: as its node knows it
    known: NodeRun | None = None
    #: its node does not answer
    is_silent: bool = False
    #: its cell has surely not begun
    is_unbegun: bool = True
    #: a node may have its order
    is_ordered: bool = False
    #: the cluster is a new one
    is_fresh: bool = False
    #: when its GPUs were gone
    gone_at: float | None = None
    #: what it waits for, should its results be with a node that is not there
    waits_for: PersistWait | None = None


Event = (
    Granted
    | Unstarted
    | Cancel
    | Preempt
    | Accepted
    | StartFailed
    | RunPhase
    | CaughtUp
    | RunSaved
    | RunStays
    | RunUnbegun
    | RunWaits
    | LeaseGone
    | NoticeDue
    | NoticeHeard
    | Unheard
    | Forgotten
    | Lost
    | Silent
    | Warned
    | Heard
    | GiveUp
    | Unkept
    | Found
)


# ----------------------------------------------------------------------------------------------- effects
@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing follows, and the log says why."""

    why: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The ledger has it at once, with what became true together with it."""

    ended: Attempt | None = None
    save: Save | None = None
    #: the number of an ended attempt that is none after all, since none follows it
    undone: int | None = None
    #: its last save has come home
    is_home: bool = False
    #: its lease, which is kept for the next run of its kernel
    kept: Lease | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Its nodes get their orders; :class:`Accepted` or :class:`StartFailed` follows."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class EndLease:
    """Its GPUs are kept, handed over as they are, or given back; :class:`LeaseGone` follows.

    ``is_clean``: its node has said that none of its processes is left. Of any other nobody knows: they are ended first.
    """

    lease: Lease | None
    is_clean: bool


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A lease that is nobody's is given back."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Abandon:
    """Its nodes end what they have of an attempt."""

    attempt_id: AttemptId
    hosts: list[str]


@dataclass(frozen=True, slots=True)
class GoBack:
    """It waits at its old place; the nodes of the attempt that has ended forget that."""

    ended: AttemptId
    hosts: list[str]
    #: those who wait get what is free
    after_others: bool


@dataclass(frozen=True, slots=True)
class WaitAgain:
    """It waits at its old place, and is granted again once its lease is given back and a moment has passed."""

    lease: Lease | None
    until_store: bool


@dataclass(frozen=True, slots=True)
class Enqueue:
    """It waits."""


@dataclass(frozen=True, slots=True)
class Finish:
    """It is over, and its nodes forget it once that is committed."""

    hosts: list[str]


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Its first node gets an ``interrupt`` or a ``kill``."""

    lease: Lease
    name: str
    reason: str = INTERRUPTED


@dataclass(frozen=True, slots=True)
class WatchNotice:
    """It is looked at each second, as long as it is preempted."""

    notice: Preemption


@dataclass(frozen=True, slots=True)
class TellNotice:
    """Its node hears that it is preempted; :class:`NoticeHeard` follows."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Stays:
    """It is not preempted, and the places that were kept by that are nobody's. ``spares``: nor is it asked soon."""

    notice: Preemption | None
    spares: bool = True


@dataclass(frozen=True, slots=True)
class Ask:
    """A fact of the event is missing: it comes again with it."""

    event: Lost | Forgotten | StartFailed


@dataclass(frozen=True, slots=True)
class KeepResults:
    """A node writes small results that the gateway has; where it cannot, :class:`Lost` follows."""

    event: Forgotten
    outcome: Outcome


Effect = (
    Refused
    | Commit
    | Start
    | EndLease
    | GiveBack
    | Abandon
    | GoBack
    | WaitAgain
    | Enqueue
    | Finish
    | SendSignal
    | WatchNotice
    | TellNotice
    | Stays
    | Ask
    | KeepResults
)


# -------------------------------------------------------------------------------------------------- step
def step(run: RunSnapshot, event: Event, now_s: float) -> tuple[RunSnapshot, tuple[Effect, ...]]:
    """The run after ``event``, and what has to be done."""
    following = _Step(run, now_s)
    match event:
        case object(attempt_id=AttemptId() as attempt_id) if attempt_id != run.attempt_id:
            following.refuse(event, f"it is of attempt {attempt_id}")
        case _:
            following.take(event)
    return following.run, tuple(following.effects)


def follows(run: RunSnapshot, outcome: Outcome) -> bool:
    """Tell if another attempt follows one that ends so."""
    if run.is_abandoned or not isinstance(run.stage, Releasing | Persisting):
        return False
    return goes_on(run.request, run.view, outcome, run.cancellation.reason)


def unwanted(find: Callable[[str], RunSnapshot | None], seen: Iterable[NodeRun], node: str) -> list[NodeRun]:
    """Attempts of which a node may keep nothing: they are over, or go on elsewhere. ``find``: a run by its id."""
    return [found for found in seen if not _is_wanted(find(found.attempt_id.run), found, node)]


def _is_wanted(run: RunSnapshot | None, seen: NodeRun, node: str) -> bool:
    if run is None:
        return not seen.holds_gpus
    if not seen.holds_gpus:  # nothing but results is left
        return not seen.attempt_id.is_before(run.attempt_id)
    if seen.attempt_id != run.attempt_id or run.outcome is not None or isinstance(run.stage, Queued | Ended):
        return False
    return run.lease is None or any(slot.node == node for slot in run.lease.slots)


def is_vacated(unwanted: Iterable[NodeRun]) -> bool:
    """Tell if a node that could not be heard may take runs again: nothing that is over may use its GPUs."""
    return not any(found.holds_gpus for found in unwanted)


def why_not_preempted(run: RunSnapshot) -> ConflictError | None:
    """The error for a run that cannot be preempted now; None: it can, or is already."""
    view = run.view
    if not view.restartable:
        return ConflictError(
            f"run {view.run} cannot be preempted: it is not restartable", hint="give its cell --restartable"
        )
    if view.stays:
        return ConflictError(f"run {view.run} cannot be preempted: {view.stays}", hint="wait for its end, or end it")
    if run.may_be_asked or isinstance(run.stage, Preempting):
        return None
    return ConflictError(f"run {view.run} does not run now ({view.state})", hint="`jupyter gpu status` shows it")


class _Step:
    """One step: the run as it is by now, and the effects so far."""

    def __init__(self, run: RunSnapshot, now_s: float) -> None:
        self.run = run
        self.now_s = now_s
        self.effects: list[Effect] = []

    def refuse(self, event: Event, why: str) -> None:
        self.do(Refused(f"{type(event).__name__} is not expected: {why}"))

    def do(self, *effects: Effect) -> None:
        self.effects += effects

    def show(self, stage: Stage | None = None, **facts: Any) -> None:
        """Change its view. A run that leaves the queue is committed at once, before its lease changes in the ledger:
        the next gateway has a run begin that the ledger calls queued, without a lease.
        """
        if isinstance(self.run.stage, Queued) and not isinstance(stage, Queued | None):
            self.do(Commit())
        self.run = self.run.shown(stage, **facts)

    def note(self, stage: Stage) -> None:
        """Facts of its stage that nobody is shown."""
        self.run = replace(self.run, stage=stage)

    def wish(self, **facts: Any) -> None:
        self.run = replace(self.run, cancellation=replace(self.run.cancellation, **facts))

    def take(self, event: Event) -> None:
        run = self.run
        match event, run.stage:
            # ------------------------------------------------------------------------------- the queue
            case Granted(lease, facts), Queued():
                at_s = max(self.now_s, run.view.submitted_at)
                shape = {**facts, **run.shape_on(lease)}
                self.show(Starting(lease), granted_at=at_s, position=None, reason="", **shape)
                self.do(Start(lease))
            case Granted(lease, _), _:
                self.refuse(event, f"it is {run.view.state}")
                self.do(GiveBack(lease))
            case Unstarted(error, lease), Queued():
                self.finish(unstarted(error))
                self.do(*([] if lease is None else [GiveBack(lease)]))
            case Unstarted(error, _), Starting() | Running() | Preempting() | Releasing(outcome=None):
                self.release(unstarted(error), is_final=True)
            # ------------------------------------------------------------------------------- its start
            case Accepted(), Starting(forgotten=reason):
                self.accept()
                if reason:
                    self.forget(Forgotten(run.attempt_id, reason, reason))
            case Accepted(), Running() | Preempting() | Releasing() | Persisting():
                self.accept()
            case StartFailed() as failed, Starting() | Running() | Preempting() | Releasing(outcome=None):
                self.start_failed(failed)
            # ----------------------------------------------------------------------- words of its node
            case RunPhase() as told, _ if run.expects(told.phase):
                if told.outcome is not None and is_lost(told.outcome) and not is_lost(run.outcome):
                    self.blame(failed_host(run.view.hosts, run.request.ask, run.lease, told.outcome), told.at_s)
                self.reach(told)
            case CaughtUp(told), _ if run.expects(told.phase):
                self.reach(told)
            case RunSaved(save=save), _ if self.is_newer(save):
                self.saved(save)
            case RunWaits(waits_for=wait), Releasing() | Persisting():
                self.wait_for(wait)
            case RunUnbegun(reason=reason), Starting(is_accepted=True):
                self.forget(Forgotten(run.attempt_id, reason, reason))
            case RunUnbegun(reason=reason), Starting() as stage:  # all nodes have not answered yet
                self.note(replace(stage, forgotten=reason))
            # ---------------------------------------------------------------------------- preemption
            case Preempt(notice, why), Running(lease) if run.may_be_asked:
                self.show(Preempting(lease, notice), notice=notice, reason=why)
                self.do(Commit(), WatchNotice(notice))
            case NoticeDue(is_needed=is_needed), Preempting() as stage:
                self.look_at_notice(stage, is_needed=is_needed)
            case NoticeHeard(is_taken=is_taken), Preempting() as stage:
                self.note(replace(stage, is_told=is_taken is not None, is_refused=is_taken is False))
            case RunStays(of_size=True), Starting() | Running() | Preempting() if run.request.ask.min_gpus is not None:
                self.run = run.of_fixed_size()
                self.show(most_gpus=0)
                self.do(Commit())
            case RunStays(of_size=False) as stays, Preempting() as stage:
                self.stay(stage, stays)
            case RunStays(of_size=False, for_now=False, reason=reason), Starting() | Running() | Releasing():
                self.show(stays=reason)
                self.do(Stays(None, spares=False))
            # ---------------------------------------------------------------------------------- its end
            case LeaseGone() as gone, Releasing(outcome=Outcome() as outcome) as stage:
                self.lease_gone(gone, stage, outcome)
            case Cancel(why), Queued():
                self.wish(reason=why)
                self.finish(unstarted(self.run.cancellation.error()))
            case Cancel() as cancel, Starting() | Running() | Preempting() | Releasing(outcome=None):
                self.cancel(cancel)
            case Cancel(why), Releasing(outcome=Outcome() as outcome) | Persisting(outcome=outcome) if follows(
                run, outcome
            ):
                self.wish(reason=why)  # it was preempted: what is saved comes home
            case GiveUp(why), Persisting():
                self.wish(reason=why)
            case Unkept(), Persisting():
                self.finish(unstarted(run.cancellation.error()))
            # -------------------------------------------------------------------------- nodes and agents
            case Forgotten() as forgotten, _ if run.accepted:
                self.forget(forgotten)
            case Lost() as gone, Starting() | Running() | Preempting() | Releasing(is_final=False) | Persisting():
                self.lose(gone)
            case Silent() | Warned() as about, _:
                self.tell(about)
            case Heard(node), _:
                self.hear_from(node)
            case Unheard(name=name), Starting() | Running() | Preempting() | Releasing():
                self.wish(unsent=run.cancellation.unsent or name)
            case Found() as found, _:
                self.find(found)
            case _:
                self.refuse(event, f"it is {run.view.state}")

    # -------------------------------------------------------------------------------- start, and again
    def accept(self) -> None:
        """The gateway needs the cell no more, and its nodes can hear signals."""
        if isinstance(self.run.stage, Starting):
            self.note(replace(self.run.stage, is_accepted=True))
        self.run = replace(self.run, request=msgspec.structs.replace(self.run.request, payload=b""))
        self.signal()

    def start_failed(self, failed: StartFailed) -> None:
        run, error = self.run, failed.error
        if failed.is_final:
            self.release(unstarted(error), is_final=True)
        elif isinstance(run.stage, Starting) and run.cancellation.reason:
            self.release(unstarted(run.cancellation.error()), is_final=True)
        elif isinstance(run.stage, Starting) and failed.has_begun is None:
            self.do(Ask(failed))
        elif isinstance(run.stage, Starting) and not failed.has_begun:
            self.wait_again(run.lease, error.message, until_store=failed.until_store)
        else:
            reason = f"the node could not start the run: {error.message}"
            self.lose(Lost(run.attempt_id, reason, failed.died_on))

    def forget(self, forgotten: Forgotten) -> None:
        run = self.run
        match run.stage:
            case Starting(is_accepted=True) if not run.cancellation.reason and run.put_back < _MOST_PUT_BACK:
                if forgotten.has_begun is None:
                    self.do(Ask(forgotten))
                    return
                if not forgotten.has_begun:
                    self.run = replace(run, put_back=run.put_back + 1)
                    self.wait_again(run.lease, forgotten.reason)
                    return
            case Persisting(outcome=outcome) if outcome.values is not None and not outcome.values.file:
                self.do(KeepResults(forgotten, outcome))
                return
        self.lose(Lost(run.attempt_id, forgotten.lost, forgotten.died_on))

    def wait_again(self, lease: Lease | None, reason: str, *, until_store: bool = False) -> None:
        """It has not begun. A node that cannot be heard may have its order, and begin it late: what is ordered next is
        a newer attempt.
        """
        starts, shape = self.run.view.vain_starts + 1, self.run.shape_on(None)
        self.run = replace(self.run, silent_node="")
        self.show(Queued(), reason=reason, granted_at=None, hosts=[], vain_starts=starts, **shape)
        self.do(Commit(), WaitAgain(lease, until_store))

    def go_back(self, outcome: Outcome, gone_at: float) -> None:
        """An attempt has ended, and its GPUs are free: the next one follows."""
        run, view = self.run, self.run.view
        save = save_of(outcome) or run.save
        ended = ended_attempt(view, outcome, gone_at, save)
        self.run = replace(run, save=save, put_back=0, cancellation=Cancellation(), silent_node="")
        self.show(
            Queued(),
            attempts=[*view.attempts, ended],
            saved_at=save.at_s if save is not None else None,
            notice=None,
            reason="",
            granted_at=None,
            running_at=None,
            hosts=[],
            gpu_ids=[],
            gpu_name="",
            on_kept=False,
            waits_for=None,
            **run.shape_on(None),
        )
        was_asked = view.notice is not None and view.notice.action == "request"
        self.do(Commit(ended=ended, save=save), GoBack(run.attempt_id, view.hosts, after_others=was_asked))

    # ------------------------------------------------------------------------------- words of its node
    def reach(self, told: RunPhase) -> None:
        match self.run.stage, told.phase:
            case _, "running":
                self.show(Running(self.run.lease), running_at=told.at_s)
            case _, "ended":
                self.release()
            case Persisting(outcome=outcome), _:
                self.finish(merged(outcome, told.outcome))
            case _:
                self.release(merged(self.run.outcome, told.outcome), is_final=told.phase == "final", is_clean=True)

    def is_newer(self, save: Save) -> bool:
        """Tell if a save is one to go on from. Of an attempt that another one follows already it comes too late."""
        known, stage = self.run.save, self.run.stage
        is_of_this = save.attempt == self.run.view.attempt and not isinstance(stage, Ended)
        return is_of_this and (known is None or known.number < save.number)

    def saved(self, save: Save) -> None:
        self.run = replace(self.run, save=save)
        self.show(saved_at=save.at_s)
        self.do(Commit(save=save))

    def wait_for(self, wait: PersistWait) -> None:
        match self.run.stage:
            case Releasing() as stage:
                self.note(replace(stage, wait=wait))
            case Persisting() as stage:
                self.show(replace(stage, wait=wait), waits_for=wait)

    def blame(self, host: str, at_s: float) -> None:
        """This attempt died of the infrastructure on ``host``; what is heard of it later is a consequence."""
        if host:
            self.run = replace(self.run, deaths={self.run.view.attempt: (host, at_s), **self.run.deaths})

    # --------------------------------------------------------------------------------- preemption
    def look_at_notice(self, stage: Preempting, *, is_needed: bool) -> None:
        """Its grace is over: it goes on from its last save. Nobody needs its GPUs any more: it goes on as it is.

        One that its user has interrupted ends by that, with what it has.
        """
        lease = stage.lease
        if lease is None:
            return
        if not stage.is_told:
            self.note(replace(stage, is_told=True))
            self.do(TellNotice(lease))
        if self.now_s >= stage.notice.deadline:
            if is_needed and not self.run.cancellation.reason:
                self.do(SendSignal(lease, "kill", "preempted"))
            elif not is_needed:
                self.show(Running(lease), notice=None, reason="")
                self.do(Stays(stage.notice, spares=False))
        elif stage.is_refused:
            self.stay(stage, RunStays(self.run.attempt_id, "it has no place to stop at any more", for_now=True))

    def stay(self, stage: Preempting, stays: RunStays) -> None:
        """It goes on, and its user is told why."""
        reason, facts = f"it was to be preempted, and cannot be now: {stays.reason}", dict[str, Any]()
        if not stays.for_now:
            reason, facts = "", {"stays": stays.reason}
        self.show(Running(stage.lease), notice=None, reason=reason, **facts)
        self.do(Stays(stage.notice))

    # ---------------------------------------------------------------------------------------- its end
    def cancel(self, cancel: Cancel) -> None:
        wish = self.run.cancellation
        interrupts = wish.interrupts + 1
        self.wish(
            reason=wish.reason or cancel.reason,
            interrupts=interrupts,
            unsent="kill" if cancel.kill or interrupts > 1 else "interrupt",
            is_given_up=wish.is_given_up or cancel.kill or cancel.gives_up,
        )
        self.signal()

    def signal(self) -> None:
        """Send what its node has not heard, if that has its order."""
        run, name = self.run, self.run.cancellation.unsent
        if name and run.accepted and run.lease is not None:
            self.wish(unsent="")
            self.do(SendSignal(run.lease, name))

    def release(
        self,
        outcome: Outcome | None = None,
        *,
        is_final: bool = False,
        gone_at: float | None = None,
        is_clean: bool = False,
    ) -> None:
        """Its last statement is done, or it was given up. Its lease ends once its outcome is known."""
        run, stage = self.run, self.run.stage
        if isinstance(stage, Releasing):
            outcome, is_final = outcome or stage.outcome, is_final or stage.is_final
            self.note(replace(stage, outcome=outcome, is_final=is_final, gone_at=gone_at or stage.gone_at))
        else:
            running_at = run.view.running_at or (outcome.started_s if outcome is not None else None)
            self.show(Releasing(run.lease, outcome, is_final, gone_at=gone_at), running_at=running_at)
        if outcome is not None and run.outcome is None:
            self.do(EndLease(run.lease, is_clean))

    def lease_gone(self, gone: LeaseGone, stage: Releasing, outcome: Outcome) -> None:
        if gone.note:
            outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, gone.note])
        gone_at, waits = gone.at_s or stage.gone_at, {"waits_for": stage.wait}
        if follows(self.run, outcome):  # clients are not told of an end
            at_s = gone_at or self.now_s
            if stage.is_final:
                self.go_back(outcome, at_s)
            else:
                self.show(Persisting(outcome, stage.wait, at_s), **waits)
            return
        facts: dict[str, Any] = {} if gone_at is None else {**gone_facts(outcome, gone_at), "kept": gone.kept}
        if gone.kept is not None:
            self.do(Commit(kept=stage.lease))
        if stage.is_final:
            self.finish(outcome, stage.gone_at, **facts)
        else:
            facts |= {"outcome": outcome, "reason": final_reason(outcome, self.run.cancellation.reason)}
            self.show(Persisting(outcome, stage.wait), **waits, **facts)

    def finish(self, outcome: Outcome, at_s: float | None = None, **facts: Any) -> None:
        """It is over (None: now), or waits for its next attempt. One that ends while it waits has ended with the one
        before.
        """
        run, cancelled, undone = self.run, self.run.cancellation.reason, None
        earlier = run.stage.gone_at if isinstance(run.stage, Persisting) else None
        if follows(run, outcome):
            self.go_back(outcome, earlier or at_s or self.now_s)
            return
        if isinstance(run.stage, Queued) and run.view.attempts:
            *before, last = run.view.attempts
            undone, facts = len(before), {"attempts": before, "gone_at": last.gone_at, "hosts": last.hosts}
            facts |= {"granted_at": last.granted_at, "running_at": last.running_at}
        elif earlier is not None:  # it was cancelled while it was saved
            facts = {"gone_at": earlier, **facts}
        outcome = brought_home(ended_by_cancel(outcome, cancelled), run.save)
        facts |= {"outcome": outcome, "reason": final_reason(outcome, cancelled), "position": None, "waits_for": None}
        ended = Ended(final_state(outcome, cancelled), outcome)
        self.show(ended, finished_at=at_s or self.now_s, notice=None, **facts)
        self.do(Commit(undone=undone, is_home=run.save is not None), Finish(run.view.hosts))

    def lose(self, gone: Lost) -> None:
        run, known = self.run, self.run.outcome
        if known is not None and gone.has_values is None:
            self.do(Ask(gone))
            return
        if known is None:
            known = lost(gone.reason)
        elif not gone.has_values:
            known = lost_results(run.view.run, known, gone.reason)
        if is_lost(known):
            self.blame(gone.died_on, self.now_s)
        if gone.ends:
            self.do(Abandon(run.attempt_id, run.view.hosts))
        if isinstance(run.stage, Queued | Persisting):
            self.finish(known, gone.at_s)
        else:
            self.release(known, is_final=True, gone_at=gone.at_s)

    # ----------------------------------------------------------------------------------- nodes, restarts
    def tell(self, about: Silent | Warned) -> None:
        """Tell its user, unless that was done, or nothing of it is on a node. Silence is more than a warning."""
        run = self.run
        if run.silent_node or not isinstance(run.stage, Starting | Running | Preempting):
            return
        if isinstance(about, Silent):
            self.run = replace(run, silent_node=about.node)
            self.show(reason=about.text)
        elif not isinstance(run.stage, Preempting) and run.view.reason != about.text:
            self.show(reason=about.text)

    def hear_from(self, node: str) -> None:
        if self.run.silent_node == node:
            self.run = replace(self.run, silent_node="")
            if self.run.lease is not None:
                self.show(reason="")
        self.signal()

    def find(self, found: Found) -> None:
        run, lease = self.run, found.lease
        match run.stage:
            case Persisting() if found.known is None and found.waits_for is not None:
                self.wait_for(found.waits_for)
            case Ended():  # it was cancelled while Ray and the nodes were asked
                self.do(Abandon(run.attempt_id, found.hosts), *([GiveBack(lease)] if lease is not None else []))
            case _ if found.is_fresh:
                self.find_cluster_gone(found)
            case _ if found.known is not None:
                self.find_known(found, found.known)
            case _ if found.is_silent:
                self.hold(found)
                self.accept()
            case stage:
                # whatever a restartable one did meanwhile, it goes on from its last save
                goes_on_later = isinstance(stage, Queued) and lease is None and run.request.restartable
                if not goes_on_later and not (found.is_unbegun and isinstance(stage, Queued | Starting)):
                    self.hold(found)
                    self.lose(Lost(run.attempt_id, found.why, at_s=found.gone_at if lease is None else None))
                elif found.is_ordered or not isinstance(stage, Queued):
                    self.wait_again(lease, "the gateway was restarted")
                else:
                    self.do(Enqueue())

    def find_cluster_gone(self, found: Found) -> None:
        """Nothing of it is anywhere; one that waits may begin, or go on, on another cluster if nobody waits for it."""
        run = self.run
        if isinstance(run.stage, Queued) and run.view.detached and (run.request.restartable or run.request.retries):
            self.do(Enqueue())
        else:
            self.run = replace(run, is_abandoned=not run.view.detached)  # sessions have ended with their cluster
            self.lose(Lost(run.attempt_id, "the cluster was started anew", at_s=found.gone_at))

    def find_known(self, found: Found, known: NodeRun) -> None:
        """Its node has it: catch up with that. One whose GPUs are nobody's any more is ended."""
        self.hold(found)
        self.accept()
        if known.save is not None and self.is_newer(known.save):
            self.saved(known.save)
        if self.run.expects(known.phase):
            self.reach(RunPhase(known.attempt_id, known.phase, known.at_s, known.outcome))
        if found.lease is None and known.phase in _HOLDS_GPUS:
            self.lose(Lost(known.attempt_id, "the lease of its GPUs is gone", ends=True))
        if known.waits_for is not None:
            self.wait_for(known.waits_for)

    def hold(self, found: Found) -> None:
        """It holds the lease that Ray still has. Of one that was just granted the ledger may say less."""
        run, lease, known = self.run, found.lease, found.known
        match run.stage:
            case Queued() if lease is not None or known is not None:
                at_s = max(self.now_s if known is None else _began_s(known), run.view.submitted_at)
                shape = run.shape_on(lease)
                self.show(Starting(lease), granted_at=at_s, position=None, reason="", hosts=found.hosts, **shape)
            case Starting() | Running() | Releasing() as stage if lease is not None:
                self.note(replace(stage, lease=lease))
            case Preempting() as stage if lease is not None:
                self.note(replace(stage, lease=lease))
                self.do(WatchNotice(stage.notice))
            case Persisting() if lease is not None:  # it needs its GPUs no more, and was about to give them back
                self.do(GiveBack(lease))
        if lease is not None and found.gpu_ids and not self.run.view.gpu_ids:
            self.show(gpu_ids=found.gpu_ids)


def _began_s(known: NodeRun) -> float:
    return (known.outcome.granted_s if known.outcome is not None else None) or known.at_s
