"""The queue: asks the pure policy whenever something changed, and has its decisions carried out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from ..core.run import RunState
from ..scheduling.actions import decide
from ..scheduling.snapshot import Expire, Grant, NodeState, QueuedRun, Slot, Snapshot, Wait
from .leases import Lease, LeaseTable
from .nodes import NodeTable
from .runs import RunRecord, RunTable

log = logging.getLogger(__name__)


class RunQueue:
    """Runs that wait, by id. ``on_grant`` and ``on_expire`` carry out what the policy decided."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        leases: LeaseTable,
        on_grant: Callable[[RunRecord, tuple[Slot, ...]], None],
        on_expire: Callable[[RunRecord, str], None],
    ) -> None:
        self._runs = runs
        self._nodes = nodes
        self._leases = leases
        self._on_grant = on_grant
        self._on_expire = on_expire
        self._waiting: dict[str, RunRecord] = {}
        self._open = False
        self._timer: asyncio.TimerHandle | None = None

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

    def remove(self, record: RunRecord) -> None:
        """Take a run out (cancelled)."""
        self._waiting.pop(record.run, None)

    def serve(self) -> None:
        """Decide about all that wait and carry it out."""
        if not (self._open and self._waiting):
            return
        now_s = time.time()
        for decision in decide(self._snapshot(self._nodes.states(self._leases)), now_s):
            record = self._waiting[decision.run]
            if isinstance(decision, Grant):
                del self._waiting[decision.run]
                self._on_grant(record, decision.placement)
            elif isinstance(decision, Expire):
                del self._waiting[decision.run]
                self._on_expire(record, decision.reason)
            else:
                self._note_wait(record, decision)
        self._set_timer(now_s)

    def successor(self, lease: Lease) -> RunRecord | None:
        """The run that would get exactly this lease's slots were they free now; it is taken out of the queue."""
        if not (self._open and self._waiting):
            return None
        nodes = tuple(_without(node, lease) for node in self._nodes.states(self._leases))
        for decision in decide(self._snapshot(nodes), time.time()):
            if isinstance(decision, Grant) and _same(decision.placement, lease.slots):
                return self._waiting.pop(decision.run)
        return None

    def _snapshot(self, nodes: tuple[NodeState, ...]) -> Snapshot:
        return Snapshot(nodes, tuple(_queued(record) for record in self._waiting.values()))

    def _note_wait(self, record: RunRecord, wait: Wait) -> None:
        view = record.view
        if (view.position, view.reason, record.state) != (wait.position, wait.reason, RunState.QUEUED):
            self._runs.change(record, RunState.QUEUED, position=wait.position, reason=wait.reason)

    def _set_timer(self, now_s: float) -> None:
        """Wake up when the next ``--wait`` is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ends = [
            record.view.submitted_at + record.request.wait_s
            for record in self._waiting.values()
            if record.request.wait_s is not None
        ]
        if ends:
            delay_s = max(0.0, min(ends) - now_s) + 0.005
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.serve)


def _queued(record: RunRecord) -> QueuedRun:
    request = record.request
    return QueuedRun(
        run=record.run, ask=request.ask, ordinal=record.ordinal, submitted_at=record.view.submitted_at,
        user=record.view.user, wait_s=request.wait_s,
    )  # fmt: skip


def _without(node: NodeState, lease: Lease) -> NodeState:
    gpus = sum(slot.gpus for slot in lease.slots if slot.node == node.node)
    cpus = sum(slot.cpus for slot in lease.slots if slot.node == node.node)
    return replace(node, gpus_free=node.gpus_free + gpus, cpus_free=node.cpus_free + cpus)


def _same(placement: tuple[Slot, ...], slots: tuple[Slot, ...]) -> bool:
    return sorted((s.node, s.gpus, s.cpus) for s in placement) == sorted((s.node, s.gpus, s.cpus) for s in slots)
