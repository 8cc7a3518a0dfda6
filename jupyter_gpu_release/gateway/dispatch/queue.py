"""The queue: asks the pure policy whenever something changed, and has its decisions carried out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from ...protocol.states import LeaseState, RunState
from ...scheduling.policy import decide, grants
from ...scheduling.snapshot import Expire, Grant, NodeState, Release, Slot, Snapshot, Wait, WarmLease
from ..cluster.lease import Lease, LeaseTable
from ..cluster.nodes import NodeTable
from ..runs.live_runs import RunTable
from ..runs.record import Queued, RunRecord

log = logging.getLogger(__name__)
_SOON_S = 0.05
#: between two decisions at least, and at least so many times as long as one takes: a long queue must not keep the
#: gateway from everything else
_PAUSE_S, _PAUSES = 0.005, 2.0


class RunQueue:
    """Runs that wait, by id. ``on_grant``, ``on_expire`` and ``on_release`` carry out what the policy decided."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        leases: LeaseTable,
        on_grant: Callable[[RunRecord, Grant], None],
        on_expire: Callable[[RunRecord, str], None],
        on_release: Callable[[Lease, str], object],
    ) -> None:
        self._runs = runs
        self._nodes = nodes
        self._leases = leases
        self._on_grant = on_grant
        self._on_expire = on_expire
        self._on_release = on_release
        self._waiting: dict[str, RunRecord] = {}
        self._open = False
        #: runs that keep their place (and what they would get) without being granted
        self._paused: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: no decision before this (monotonic seconds), and when the next one is due
        self._rests_until_s = self._soon_at_s = 0.0
        self._soon: asyncio.TimerHandle | None = None

    def __contains__(self, run: str) -> bool:
        return run in self._waiting

    def waiting(self) -> list[RunRecord]:
        """The waiting runs in order."""
        return sorted(self._waiting.values(), key=lambda record: record.ordinal)

    def open(self) -> None:
        """Begin to grant (recovery is over)."""
        self._open = True
        self.serve()

    def add(self, record: RunRecord) -> None:
        """Have a run wait; the next :meth:`serve` decides."""
        self._waiting[record.run] = record

    def put_back(self, record: RunRecord) -> None:
        """Have a run wait in its old place: not granted before :meth:`resume`, and nobody gets what it would get."""
        self._paused.add(record.run)
        self._waiting[record.run] = record

    def resume(self, record: RunRecord) -> None:
        """Go on with a run that was put back."""
        self._paused.discard(record.run)
        self.serve()

    def remove(self, record: RunRecord) -> None:
        """Take a run out."""
        self._waiting.pop(record.run, None)

    def serve(self) -> None:
        """Decide about all that wait (and about what is kept warm) and carry it out: now, or in a moment together
        with what happens until then.
        """
        if time.monotonic() < self._rests_until_s:
            self._serve_at(self._rests_until_s)
        else:
            self._serve_now()

    def _serve_now(self) -> None:
        self._cancel_soon()
        if not (self._open and (self._waiting or self._leases.warm())):
            return
        began_s = time.monotonic()
        self._decide()
        ended_s = time.monotonic()
        self._rests_until_s = ended_s + max(_PAUSE_S, _PAUSES * (ended_s - began_s))

    def _decide(self) -> None:
        now_s = time.time()
        for decision in decide(self._snapshot(self._nodes.states(self._leases)), now_s):
            if isinstance(decision, Release):
                lease = self._leases.find(decision.lease)
                if lease is not None:
                    self._on_release(lease, decision.reason)
                continue
            record = self._waiting[decision.run]
            if isinstance(decision, Grant):
                if decision.run in self._paused:
                    continue
                del self._waiting[decision.run]
                self._on_grant(record, decision)
            elif isinstance(decision, Expire):
                del self._waiting[decision.run]
                self._on_expire(record, decision.reason)
            else:
                self._note_wait(record, decision)
        self._set_timer(now_s)

    def serve_soon(self) -> None:
        """Like :meth:`serve`, together with what comes until then: nothing became free, only places have changed."""
        self._serve_at(max(self._rests_until_s, time.monotonic() + _SOON_S))

    def _serve_at(self, at_s: float) -> None:
        """Decide then, unless that is to be sooner already. Its own clock: loops' timers come early, or do not say when
        they come.
        """
        if self._soon is None or at_s < self._soon_at_s:
            self._cancel_soon()
            self._soon_at_s = at_s
            delay_s = max(0.0, at_s - time.monotonic())
            self._soon = asyncio.get_running_loop().call_later(delay_s, self._serve_now)

    def _cancel_soon(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def successor(self, lease: Lease) -> RunRecord | None:
        """The run that would get exactly this lease's slots were they free now; :meth:`remove` it to start it."""
        if not (self._open and self._waiting):
            return None
        nodes = tuple(_without(node, lease) for node in self._nodes.states(self._leases))
        for decision in grants(self._snapshot(nodes), time.time()):
            if not decision.lease and decision.run not in self._paused and _same(decision.placement, lease.slots):
                return self._waiting[decision.run]
        return None

    def leaves(self, lease: Lease) -> bool:
        """Tell if nobody but the kernel that keeps it would get a warm lease (or its GPUs) now."""
        kept = lease.kept
        for decision in decide(self._snapshot(self._nodes.states(self._leases)), time.time()):
            if isinstance(decision, Release) and decision.lease == lease.name:
                return False
            if isinstance(decision, Grant) and decision.lease == lease.name:
                return kept is not None and self._waiting[decision.run].view.session == kept.session
        return True

    def _snapshot(self, nodes: tuple[NodeState, ...]) -> Snapshot:
        warm = tuple(facts for lease in self._leases.warm() if (facts := _warm(lease)) is not None)
        return Snapshot(nodes, tuple(record.queued for record in self._waiting.values()), warm)

    def _note_wait(self, record: RunRecord, wait: Wait) -> None:
        view = record.view
        if (view.position, view.reason, record.state) != (wait.position, wait.reason, RunState.QUEUED):
            if view.position is None:
                self._runs.change(record, Queued(), position=wait.position, reason=wait.reason)
            else:
                self._runs.move(record, wait.position, wait.reason)

    def _set_timer(self, now_s: float) -> None:
        """Wake up when the next ``--wait`` is over, or the time of a warm lease."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ends = [
            record.view.submitted_at + record.request.wait_s
            for record in self._waiting.values()
            if record.request.wait_s is not None
        ]
        ends += [lease.kept.until_s for lease in self._leases.warm() if lease.kept is not None]
        if ends:
            delay_s = max(0.0, min(ends) - now_s) + 0.005
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.serve)


def _warm(lease: Lease) -> WarmLease | None:
    """A warm lease as the scheduling policy sees it."""
    kept = lease.kept
    if kept is None or lease.state is not LeaseState.WARM:
        return None
    return WarmLease(lease.name, lease.slots, kept.ask, kept.user, kept.session, kept.until_s, kept.auto)


def _without(node: NodeState, lease: Lease) -> NodeState:
    gpus = sum(slot.gpus for slot in lease.slots if slot.node == node.node)
    cpus = sum(slot.cpus for slot in lease.slots if slot.node == node.node)
    return replace(node, gpus_free=node.gpus_free + gpus, cpus_free=node.cpus_free + cpus)


def _same(placement: tuple[Slot, ...], slots: tuple[Slot, ...]) -> bool:
    return sorted((s.node, s.gpus, s.cpus) for s in placement) == sorted((s.node, s.gpus, s.cpus) for s in slots)
