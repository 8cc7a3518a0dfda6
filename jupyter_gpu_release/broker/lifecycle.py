"""The life of a run: submitted, granted, started, released, final; cancelled, expired or lost on the way."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any

from ..core.messages import Outcome, PersistWait
from ..core.node_messages import RunPhase
from ..core.run import RunState
from ..errors import ClusterError, GpuReleaseError, RunCancelledError, RunFailedError
from ..scheduling.snapshot import Grant
from . import gangs, ledger
from . import leases as ray_leases
from .background import BackgroundWork
from .endings import final_reason, final_state, lost, lost_results, merged, unstarted
from .finished import FinishedRuns
from .journal import Journal
from .leases import Lease, LeaseTable, group_name
from .manifests import Manifests
from .nodes import NodeTable
from .queue import RunQueue
from .runs import PHASES, RunRecord, RunTable, Told
from .succession import Succession
from .warm import WarmLeases

log = logging.getLogger(__name__)
#: why a run is cancelled whose own cell was interrupted
INTERRUPTED = "interrupted"
#: pause before a run that Ray did not grant is tried again
_AGAIN_S = 0.5
#: followers that are further behind than this after a run's end read from its log
_TAIL_KEPT_S = 5.0


class Lifecycle:
    """Carries out decisions; every method runs on the event loop."""

    def __init__(
        self, runs: RunTable, nodes: NodeTable, leases: LeaseTable, journal: Journal, manifests: Manifests,
        warm: WarmLeases,
    ) -> None:  # fmt: skip
        self.runs = runs
        self.nodes = nodes
        self.leases = leases
        self.queue = RunQueue(runs, nodes, leases, self._on_grant, self._on_expire, warm.give_up)
        self.warm = warm
        warm.free, warm.is_left, warm.serve = self._free, self.queue.leaves, self.queue.serve
        self._journal = journal
        self._manifests = manifests
        self.spawn = BackgroundWork().spawn
        self.finished = FinishedRuns(nodes)
        self._succession = Succession(self.queue, runs, leases, nodes)

    # ------------------------------------------------------------------------------------ granted
    def _on_grant(self, record: RunRecord, grant: Grant) -> None:
        if grant.lease:
            lease, kept = self.warm.take(grant.lease, record.run)
            self._start_on(record, lease, on_kept=kept.session == record.view.session)
        else:
            self._start_on(record, self.leases.add(Lease(group_name(record.run), record.run, grant.placement)))

    def _start_on(self, record: RunRecord, lease: Lease, *, on_kept: bool = False) -> None:
        record.lease = lease
        granted_at = time.time()
        nodes = [found for slot in lease.slots if (found := self.nodes.find(slot.node)) is not None]
        hosts = [node.host for node in nodes]
        lease.incarnation = nodes[0].info.incarnation if nodes and nodes[0].info is not None else ""
        # threads write this down while we wait for Ray
        written: list[asyncio.Future[Any]] = [self._manifests.create_folder(record.run), self.record_lease(lease)]
        if not lease.gpu_ids:
            ray_leases.begin(lease, self.nodes.runtime)
        record.starting = self.spawn(self._start(record, lease, written))
        self.runs.change(
            record, RunState.STARTING, told=Told.SOON, granted_at=granted_at, position=None, reason="", hosts=hosts,
            on_kept=on_kept, **(self._accelerators(lease) if lease.gpu_ids else {}),
        )  # fmt: skip

    async def _start(self, record: RunRecord, lease: Lease, written: list[asyncio.Future[Any]]) -> None:
        try:
            await self._order_and_grant(record, lease, written)
        except ClusterError as error:
            await self._after_failed_start(record, lease, error)
        except GpuReleaseError as error:
            await self._end_unstarted(record, error)
        except Exception as error:  # a fault of ours must not keep GPUs: the run fails and lets go
            log.exception("run %s could not be started", record.run)
            await self._end_unstarted(record, ClusterError(f"the gateway could not start the run: {error!r}"))
        else:
            record.drop_payload()
            if record.interrupts:
                await self._signal(record, "interrupt" if record.interrupts == 1 else "kill")

    async def _end_unstarted(self, record: RunRecord, error: GpuReleaseError) -> None:
        record.outcome = unstarted(error)
        record.releasing = asyncio.current_task()
        await self.end_lease(record)

    async def _order_and_grant(self, record: RunRecord, lease: Lease, written: list[asyncio.Future[Any]]) -> None:
        """The node gets its order while Ray makes the lease; the cell runs when both are there."""
        try:
            try:
                for done in [*written, *([record.committed] if record.committed else [])]:
                    await done
                if record.cancelled:
                    raise RunCancelledError(record.cancelled)
                self._succession.look_ahead(record)
                order = gangs.start_order(record, lease, self.nodes, self._manifests.folder(record.run))
                ordered = await gangs.start(self.nodes, lease, order)
            finally:
                if not lease.gpu_ids:
                    await ray_leases.finish(lease)
            if order.gpu_ids is None:
                self._note_accelerators(record, lease)
            await gangs.accepted(self.nodes, ordered)
            await gangs.grant(self.nodes, lease, order)
        except GpuReleaseError:
            gangs.abandon(self.nodes, lease, record.run)
            await self._succession.let_go(record.after, lease)
            raise

    def _note_accelerators(self, record: RunRecord, lease: Lease) -> None:
        """In the ledger and in the view; a quick cell may have ended before its gateway knows them."""
        if record.lease is lease:
            self._journal.later(lease.name, partial(ledger.put_lease, lease=lease.stored()))
            self.runs.change(record, told=Told.SOON, **self._accelerators(lease))

    def _accelerators(self, lease: Lease) -> dict[str, Any]:
        """What the view says of a lease's GPUs."""
        found = self.nodes.find(lease.slots[0].node)
        cards = found.info.gpus if found is not None and found.info is not None else []
        ids = [i for per_slot in lease.gpu_ids for i in per_slot]
        return {"gpu_ids": ids, "gpu_name": cards[0].name if cards and ids else ""}

    async def _after_failed_start(self, record: RunRecord, lease: Lease, error: ClusterError) -> None:
        """Not granted by Ray: back to its place in the queue. Its agent died: whether the cell began is unknown."""
        begun = bool(lease.gpu_ids) or await self.nodes.has_begun(lease.slots[0].node, record.run)
        if begun and not record.cancelled:
            await self.lose(record, f"the node could not start the run: {error.message}")
            return
        record.lease = None
        if record.cancelled:
            await self._free(lease)
            record.outcome = unstarted(RunCancelledError(record.cancelled))
            self._finish(record)
            return
        log.warning("run %s waits again: %s", record.run, error.message)
        self.runs.change(record, RunState.QUEUED, reason=error.message, granted_at=None, hosts=[])
        self.queue.put_back(record)
        await self._free(lease)  # its next lease has the same name
        await asyncio.sleep(_AGAIN_S)
        self.queue.resume(record)

    # ------------------------------------------------------------------------------------- phases
    def on_phase(self, record: RunRecord, message: RunPhase) -> asyncio.Task[None] | None:
        """Take in what a node reports; repeated or late phases do nothing."""
        phase = PHASES.get(message.phase, 0)
        record.stays |= message.stays
        if phase <= record.phase or record.state.is_terminal:
            return None
        record.phase = phase
        record.accepted = True
        if phase == PHASES["running"]:
            if record.state is RunState.STARTING:
                self.runs.change(record, RunState.RUNNING, running_at=message.at_s)
        elif phase == PHASES["ended"]:
            self._to_releasing(record)
        else:
            record.outcome = merged(record.outcome, message.outcome)
            return self._on_outcome(record)
        return None

    def on_waits(self, record: RunRecord, wait: PersistWait) -> None:
        """Take in why a run's results are not durable yet."""
        record.waits_for = wait
        if record.state is RunState.PERSISTING:
            self.runs.change(record, waits_for=wait)

    def end_unkept(self, record: RunRecord, reason: str) -> None:
        """Nobody waits for a persisting run's results any more, and no node that is there keeps them."""
        record.outcome = unstarted(RunCancelledError(reason))
        record.phase = PHASES["final"]
        self._finish(record)

    def _on_outcome(self, record: RunRecord) -> asyncio.Task[None] | None:
        if record.releasing is None:
            self._to_releasing(record)
            record.releasing = self.spawn(self.end_lease(record))
        elif record.state is RunState.PERSISTING and record.phase == PHASES["final"]:
            self._finish(record)
        return record.releasing

    def _to_releasing(self, record: RunRecord) -> None:
        if record.state in (RunState.STARTING, RunState.RUNNING):
            started = record.outcome.started_s if record.outcome is not None else None
            running_at = record.view.running_at or started
            self.runs.change(record, RunState.RELEASING, told=Told.SOON, running_at=running_at)

    async def end_lease(self, record: RunRecord) -> None:
        """Give the run's GPUs back (or straight to the next run, or keep them warm), then show its outcome."""
        await self.warm.until_granted(record)
        lease, record.lease = record.lease, None
        self._to_releasing(record)
        silent = await gangs.members_left(self.nodes, lease, record.run) if lease is not None else frozenset[str]()
        kept = self.warm.keep(record, lease) if lease is not None and not silent else None
        handed = lease is not None and not kept and not silent and await self._hand_over(record, lease)
        if lease is not None and not kept and not handed:
            await self._free(lease, silent)
        now_s = time.time()
        outcome = record.outcome or Outcome(status="lost")
        release_ms = None if outcome.ended_s is None else max(0.0, (now_s - outcome.ended_s) * 1000)
        also = self.warm.written(lease) if lease is not None and kept else None
        gone: dict[str, Any] = {"gone_at": now_s, "release_ms": release_ms, "kept": kept, "also": also} if lease else {}
        if record.phase == PHASES["final"] or record.phase < PHASES["released"]:
            self._finish(record, **gone)
        else:
            self.runs.change(record, RunState.PERSISTING, outcome=outcome, waits_for=record.waits_for, **gone)
        (self.queue.serve_soon if handed else self.queue.serve)()

    async def _hand_over(self, record: RunRecord, lease: Lease) -> bool:
        """When the next run wants exactly these slots it gets the group as it is, with no word to Ray."""
        successor = await self._succession.next_on(lease, record)
        if successor is None:
            return False
        self._start_on(successor, self.leases.add(lease.handed_to(successor.run)))
        return True

    async def _free(self, lease: Lease, silent: frozenset[str] = frozenset()) -> None:
        await ray_leases.release(lease, self.leases, self.nodes.totals(), silent)
        self.leases.forget(lease)
        self._journal.later(lease.name, partial(ledger.drop_lease, lease=lease.name))

    def _finish(self, record: RunRecord, **facts: Any) -> None:
        """The run is over: its terminal state is committed, later its agent may forget it."""
        if record.state.is_terminal:
            return
        outcome = record.outcome = record.outcome or Outcome(status="lost")
        facts |= {"outcome": outcome, "reason": final_reason(outcome, record.cancelled), "position": None}
        facts["waits_for"] = None
        state = final_state(outcome, record.cancelled)
        committed = self.runs.change(record, state, finished_at=time.time(), **facts)
        asyncio.get_running_loop().call_later(_TAIL_KEPT_S, record.tail.clear)
        if record.accepted:
            self.finished.add(record, committed)

    # -------------------------------------------------------------------- cancelled, expired, lost
    def _on_expire(self, record: RunRecord, reason: str) -> None:
        record.outcome = unstarted(RunFailedError(reason, mend="ask for fewer GPUs, or wait longer: --wait"))
        self._finish(record)

    async def cancel(self, record: RunRecord, reason: str, *, kill: bool = False) -> None:
        """End a run: at once while it waits, else by an interrupt; the second one (or ``kill``) kills."""
        if record.state.is_terminal or record.phase >= PHASES["released"]:
            return
        record.is_given_up |= kill or reason != INTERRUPTED
        if record.run in self.queue or record.state in (RunState.SUBMITTED, RunState.QUEUED):
            self.queue.remove(record)
            record.cancelled = reason
            record.outcome = unstarted(RunCancelledError(reason))
            self._finish(record)
            self.queue.serve()
            return
        record.interrupts += 1
        record.cancelled = record.cancelled or reason
        if record.accepted:
            await self._signal(record, "kill" if kill or record.interrupts > 1 else "interrupt")

    async def _signal(self, record: RunRecord, name: str) -> None:
        lease = record.lease
        if lease is None:
            return
        try:
            await self.nodes.call(lease.slots[0].node, "signal", record.run, name, "interrupted")
        except ClusterError as error:
            log.warning("run %s: %s", record.run, error.message)

    async def lose(self, record: RunRecord, reason: str) -> None:
        """The run's process, agent, node or cluster is gone."""
        if record.state.is_terminal or record.phase == PHASES["final"]:
            return
        self.queue.remove(record)
        log.warning("run %s is lost: %s", record.run, reason)
        if record.outcome is None or record.phase < PHASES["released"]:
            record.outcome = lost(reason)
        elif not self._manifests.has_values(record.run, record.outcome):
            record.outcome = lost_results(record.run, record.outcome, reason)
        record.phase = PHASES["final"]
        if record.releasing is None:
            record.releasing = self.spawn(self.end_lease(record))
        elif record.state is RunState.PERSISTING:
            self._finish(record)

    # ------------------------------------------------------------------------------------- shared
    def record_lease(self, lease: Lease) -> asyncio.Future[None]:
        """Commit what the lease is now."""
        stored = lease.stored()
        return self._journal.put(partial(ledger.put_lease, lease=stored), replaces=lease.name)
