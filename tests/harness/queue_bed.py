"""A queue of runs on the test's own event loop, without Ray, agents and ledger: what is granted holds a lease."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from jupyter_gpu_release.gateway.cluster.lease import Lease, LeaseTable
from jupyter_gpu_release.gateway.cluster.nodes import NodeTable
from jupyter_gpu_release.gateway.db.rows import WarmLeaseRow
from jupyter_gpu_release.gateway.dispatch.run_queue import RunQueue
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.protocol.node import AttemptId, NodeInfo
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.states import LeaseState
from jupyter_gpu_release.scheduling.decisions import Grant, MakeRoom, Slot
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile


class QueueBed:
    """A queue over nodes (name → GPUs); ``external``: GPUs that others use on the first."""

    def __init__(self, gpus: Mapping[str, int] | None = None, external: int = 0) -> None:
        self.granted: list[str] = []
        self.handed: list[tuple[str, str]] = []
        self.expired: list[str] = []
        #: runs that were preempted, and for whom
        self.asked: list[tuple[str, str]] = []
        #: runs that the queue failed at
        self.failed: list[str] = []
        self.records: dict[str, RunRecord] = {}
        listener: Any = SimpleNamespace(on_leases_changed=lambda: None, on_nodes_changed=lambda: None)
        self.nodes = NodeTable("", listener)
        for name, count in (gpus or {"n": 8}).items():
            self.add_node(name, count)
        self.node = self.nodes.alive()[0]
        self.leases = LeaseTable(listener)
        self.leases.external = {self.node.node: external}
        runs: Any = SimpleNamespace(change=lambda *_, **__: None, move=lambda *_: None, get=self.records.get)
        self.rules: Any = SimpleNamespace(file=QueuesFile())
        self.queue = RunQueue(
            runs,
            self.nodes,
            self.leases,
            self.rules,
            self._on_grant,
            self._on_expire,
            self._on_release,
            self._on_hand_over,
            self._on_fault,
            self._on_make_room,
            lambda _: False,
            lambda wait: wait,
            lambda _: (),
        )

    def add_node(self, name: str, gpus: int) -> None:
        self.nodes.refresh(
            [{"NodeID": name, "NodeManagerHostname": name, "Alive": True, "Resources": {"GPU": gpus, "CPU": 8}}]
        )
        self.nodes.alive()[-1].info = NodeInfo(name, name, "1", "3", "")

    def _on_grant(self, record: RunRecord, grant: Grant) -> None:
        self.granted.append(record.run)
        if grant.lease:
            lease = self.leases.find(grant.lease)
            assert lease is not None
            lease.kept = None
            self.leases.add(lease.handed_to(record.attempt_id)).state = LeaseState.STARTING
        else:
            self.lease(record.run, grant.placement)

    def _on_expire(self, record: RunRecord, _reason: str) -> None:
        self.expired.append(record.run)

    def _on_fault(self, record: RunRecord, _fault: Exception) -> None:
        self.failed.append(record.run)

    def _on_make_room(self, room: MakeRoom) -> bool:
        self.asked += [(each.run, room.run) for each in room.preempts]
        return True

    def _on_release(self, lease: Lease, _why: str) -> None:
        lease.kept, lease.state = None, LeaseState.RELEASING

    def _on_hand_over(self, lease: Lease, record: RunRecord) -> None:
        self.handed.append((lease.run, record.run))
        self.leases.add(lease.handed_to(record.attempt_id))

    def lease(self, run: str, slots: tuple[Slot, ...]) -> Lease:
        return self.leases.add(Lease(f"lease-{run}", AttemptId(run, 0), slots))

    def keep(self, lease: Lease) -> None:
        """Its run is over, and its kernel keeps it for as long as nobody waits."""
        view, now_s = self.records[lease.run].view, time.time()
        lease.state = LeaseState.WARM
        lease.kept = WarmLeaseRow(view.user, f"session of {view.user}", now_s, now_s + 3600.0, auto=True)

    def run(
        self, name: str, gpus: int = 3, ordinal: int = 0, user: str = "ann", wait_s: float | None = None, **ask: Any
    ) -> RunRecord:
        session = f"session of {user}"
        view = RunView(
            name, user, "queued", position=1, submitted_at=time.time() + ordinal, queue="default", session=session
        )
        record = RunRecord(view, ordinal, RunRequest(name, session, ResourceAsk(gpus=gpus, **ask), b"", wait_s=wait_s))
        self.records[name] = record
        return record

    def wait(self, *names: str, gpus: int = 3, **facts: Any) -> list[RunRecord]:
        records = [self.run(name, gpus, ordinal, **facts) for ordinal, name in enumerate(names)]
        for record in records:
            self.queue.add(record)
        return records

    def decide(self) -> None:
        """Now, however long ago the last decision was."""
        self.queue._rests_until_s = 0.0
        self.queue.serve()
