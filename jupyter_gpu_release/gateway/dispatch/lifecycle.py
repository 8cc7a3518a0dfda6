"""A run from grant to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from ...errors import ClusterError, GpuReleaseError, RunCancelledError, RunFailedError, StoreSilentError
from ...protocol.node import RunPhase
from ...protocol.runs import Outcome, PersistWait
from ...protocol.states import RunState
from ...scheduling.snapshot import Grant
from ..cluster.lease import Lease, LeaseTable
from ..cluster.nodes import NodeTable
from ..cluster.placement_groups import RayLeases, group_name
from ..db import database
from ..db.writer import LedgerWriter
from ..runs.live_runs import RunTable
from ..runs.manifests import Manifests
from ..runs.outcomes import final_reason, final_state, gone_facts, lost, lost_results, merged, unstarted
from ..runs.record import PHASES, NotifyWhen, RunRecord
from . import gangs
from .queue import RunQueue
from .start import LeaseRecorder, RunStarter
from .tasks import BackgroundWork
from .warm import WarmLeases

log = logging.getLogger(__name__)


class FinishedRuns:
    """Ended runs that their agents still remember, with the commit of their end."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._waiting: list[tuple[RunRecord, asyncio.Future[None] | None]] = []

    def add(self, record: RunRecord, committed: asyncio.Future[None] | None) -> None:
        """A run has ended; None: there is nothing to commit."""
        self._waiting.append((record, committed))

    async def forget(self) -> None:
        """Let agents forget runs whose end is committed (called every few seconds)."""
        waiting, self._waiting = self._waiting, []
        over: list[RunRecord] = []
        for record, committed in waiting:
            if committed is None or (committed.done() and committed.exception() is None):
                over.append(record)
            else:
                self._waiting.append((record, committed))
        for node in self._nodes.ready() if over else ():
            # one that does not answer is told when it does (``gateway/reconcile/stray_leases.py``)
            runs = [record.run for record in over if node.host in record.view.hosts] if node.reachable else []
            try:
                await self._nodes.agent(node.node).forget(runs)
            except ClusterError as error:
                log.info("%d runs are not forgotten: %s", len(runs), error.message)


#: why a run is cancelled whose own cell was interrupted
INTERRUPTED = "interrupted"
#: pause before a run that Ray did not grant is tried again
_AGAIN_S = 0.5
#: a cell waits for its GPUs to be reported free at most so long
FREE_S = 20.0
#: an agent that died is there again within this, or its node is in trouble
_AGENT_BACK_S = 60.0
#: a run whose agent dies each time before it begins may be the reason
_MOST_PUT_BACK = 3
#: followers that are further behind than this after a run's end read from its log
_TAIL_KEPT_S = 5.0


def _is_unbegun(record: RunRecord) -> bool:
    """Whether nothing was heard of its cell, and nobody wants it ended."""
    is_quiet = not record.phase and record.outcome is None and record.releasing is None
    return is_quiet and record.state is RunState.STARTING and not record.cancelled


class Lifecycle:
    """Carries out decisions; every method runs on the event loop."""

    def __init__(
        self, runs: RunTable, nodes: NodeTable, leases: LeaseTable, journal: LedgerWriter, manifests: Manifests,
        warm: WarmLeases, ray_leases: RayLeases,
    ) -> None:  # fmt: skip
        self.runs = runs
        self.nodes = nodes
        self.leases = leases
        self.queue = RunQueue(runs, nodes, leases, self._on_grant, self._on_expire, warm.give_up)
        self.warm = warm
        warm.free, warm.is_left, warm.serve = self.free, self.queue.leaves, self.queue.serve
        self._ray_leases = ray_leases
        self._journal = journal
        self._manifests = manifests
        self.spawn = BackgroundWork().spawn
        self.finished = FinishedRuns(nodes)
        self.holding = LeaseRecorder(runs, nodes, journal)
        #: leases that are being given back
        self.freeing: set[Lease] = set()
        self._starting = RunStarter(nodes, manifests, self.holding, ray_leases)

    # ------------------------------------------------------------------------------------ granted
    def _on_grant(self, record: RunRecord, grant: Grant) -> None:
        if grant.lease:
            lease, kept = self.warm.take(grant.lease, record.run)
            self._start_on(record, lease, on_kept=kept.session == record.view.session)
        else:
            self._start_on(record, self.leases.add(Lease(group_name(record.run), record.run, grant.placement)))

    def _start_on(self, record: RunRecord, lease: Lease, *, on_kept: bool = False) -> None:
        granted_at = time.time()
        recorded = self.holding.hold(record, lease)
        # threads write this down while we wait for Ray
        written: list[asyncio.Future[Any]] = [self._manifests.create_folder(record.run), recorded]
        if not lease.gpu_ids:
            self._ray_leases.begin(lease, self.nodes.runtime)
        record.starting = self.spawn(self._start(record, lease, written))
        self.holding.to_starting(record, lease, granted_at, on_kept=on_kept)

    async def _start(self, record: RunRecord, lease: Lease, written: list[asyncio.Future[Any]]) -> None:
        try:
            await self._starting.carry_out(record, lease, written)
        except (ClusterError, StoreSilentError) as error:
            await self._after_failed_start(record, lease, error)
        except GpuReleaseError as error:
            await self._end_unstarted(record, error)
        except Exception as error:  # a fault of ours must not keep GPUs: the run fails and lets go
            log.exception("run %s could not be started", record.run)
            await self._end_unstarted(record, ClusterError(f"the gateway could not start the run: {error!r}"))
        else:
            record.drop_payload()
            if record.signal:
                await self._signal(record)

    async def _end_unstarted(self, record: RunRecord, error: GpuReleaseError) -> None:
        record.outcome = unstarted(error)
        record.releasing = asyncio.current_task()
        await self.end_lease(record)

    async def _after_failed_start(self, record: RunRecord, lease: Lease, error: GpuReleaseError) -> None:
        """Not granted by Ray, or the store hangs: back to its place in the queue. Its agent died: whether the cell
        began is unknown.
        """
        is_ordered = not isinstance(error, StoreSilentError)
        begun = is_ordered and await self._may_have_begun(record, lease)
        if record.releasing is not None:  # it was given up meanwhile, and is being ended
            return
        if begun and not record.cancelled:
            await self.lose(record, f"the node could not start the run: {error.message}")
            return
        record.lease = None
        if record.cancelled:
            await self._free_in_time(record, lease, await gangs.members_left(self.nodes, lease, record.run))
            record.outcome = unstarted(RunCancelledError(record.cancelled))
            self._finish(record)
            return
        log.warning("run %s waits again: %s", record.run, error.message)
        until = None if is_ordered else self._manifests.threads.until_answered
        await self.wait_again(record, lease, error.message, _AGAIN_S, until)

    async def begin_again(self, record: RunRecord, reason: str) -> bool:
        """The agent that had the run is gone: back to its place in the queue. False: it has begun, or may have."""
        lease = record.lease
        if not _is_unbegun(record) or lease is None or await self._may_have_begun(record, lease):
            return False
        if not _is_unbegun(record) or record.lease is not lease or not record.accepted:  # somebody else was faster
            return False
        if record.put_back >= _MOST_PUT_BACK:
            return False
        self.runs.reload(record)
        record.put_back += 1
        record.accepted = False
        self.spawn(self.wait_again(record, lease, reason, _AGAIN_S))
        return True

    async def _may_have_begun(self, record: RunRecord, lease: Lease) -> bool:
        """The agent of its first node knows, which may be restarting just now."""
        first, deadline = lease.slots[0].node, time.monotonic() + _AGENT_BACK_S
        while not record.cancelled and record.releasing is None:
            try:
                return await self.nodes.agent(first).has_begun(record.run)
            except ClusterError:
                node = self.nodes.find(first)
                if node is None or not node.alive or time.monotonic() > deadline:
                    break
            await asyncio.sleep(_AGAIN_S)
        return bool(lease.gpu_ids)

    async def wait_again(
        self, record: RunRecord, lease: Lease | None, reason: str, pause_s: float = 0.0,
        until: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        """A run that has not begun goes back to its place; it is granted again once its lease, if any, is gone."""
        record.lease = None
        self.runs.change(record, RunState.QUEUED, reason=reason, granted_at=None, hosts=[])
        self.queue.put_back(record)
        if lease is not None:
            await self._take_back(record, lease)  # the next one has the same name
        await (until() if until is not None else asyncio.sleep(pause_s))
        self.queue.resume(record)

    async def _take_back(self, record: RunRecord, lease: Lease) -> None:
        """No node goes on with it, nor has heard of its accelerators, before it is granted others."""
        self.freeing.add(lease)
        gangs.abandon(self.nodes, lease, record.run)
        await self.free(lease, await gangs.members_left(self.nodes, lease, record.run))

    async def on_unbegun(self, record: RunRecord, reason: str) -> None:
        """The leader of a gang has forgotten it, since nothing of it had begun and it lost processes."""
        if record.starting is not None:  # it may be told before all nodes have answered
            await asyncio.wait({record.starting})
        lease = record.lease
        if not record.accepted or lease is None or await self.begin_again(record, reason):
            return
        with contextlib.suppress(ClusterError):  # else its node is in trouble, and what becomes of that is seen
            known = {run.run for run in await self.nodes.agent(lease.slots[0].node).runs()}
            if record.lease is lease and record.run not in known:  # cancelled, or it has been tried often enough
                await self.lose(record, reason)

    # ------------------------------------------------------------------------------------- phases
    def on_phase(self, record: RunRecord, message: RunPhase) -> asyncio.Task[None] | None:
        """Take in what a node reports; repeated or late phases do nothing."""
        phase = PHASES.get(message.phase, 0)
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
            self.runs.change(record, RunState.RELEASING, told=NotifyWhen.SOON, running_at=running_at)

    async def end_lease(self, record: RunRecord) -> None:
        """Give the run's GPUs back (or straight to the next run, or keep them warm), then show its outcome."""
        await self.warm.until_granted(record)
        lease, record.lease = record.lease, None
        self._to_releasing(record)
        silent = await gangs.members_left(self.nodes, lease, record.run) if lease is not None else frozenset[str]()
        kept = self.warm.keep(record, lease) if lease is not None and not silent else None
        handed = lease is not None and not kept and not silent and await self._hand_over(record, lease)
        freed = True
        if lease is not None and not kept and not handed:
            freed = await self._free_in_time(record, lease, silent)
        outcome = record.outcome or Outcome(status="lost")
        gone: dict[str, Any] = {}
        if (lease is not None and freed) or handed:
            also = self.warm.written(lease) if lease is not None and kept else None
            gone = {**gone_facts(outcome, time.time()), "kept": kept, "also": also}
        if record.phase == PHASES["final"] or record.phase < PHASES["released"]:
            self._finish(record, **gone)
        else:
            self.runs.change(record, RunState.PERSISTING, outcome=outcome, waits_for=record.waits_for, **gone)
        (self.queue.serve_soon if handed else self.queue.serve)()

    def end_again(self, record: RunRecord) -> None:
        """Show the outcome of a run whose ending has failed."""
        record.releasing = self.spawn(self.end_lease(record))

    async def _hand_over(self, record: RunRecord, lease: Lease) -> bool:
        """Hand the group over as it is, with no word to Ray, when the next run wants exactly these slots."""
        starting = record.starting
        if not lease.gpu_ids and starting not in (None, asyncio.current_task()):
            await asyncio.wait({starting})  # it ended before Ray's word of them came here
        successor = self.queue.successor(lease)
        if successor is None:
            return False
        self.queue.remove(successor)
        self._start_on(successor, self.leases.add(lease.handed_to(successor.run)))
        return True

    async def free(self, lease: Lease, silent: frozenset[str] = frozenset()) -> None:
        """Give a lease back; returns when its GPUs are free, and goes on trying until they are."""
        self.freeing.add(lease)
        try:
            await self._ray_leases.release(lease, self.nodes.totals(), silent)
        finally:
            self.freeing.discard(lease)
        if self.leases.forget(lease):  # else a newer lease has the name, and its place in the ledger
            self._journal.later(lease.name, partial(database.drop_lease, lease=lease.name))

    async def _free_in_time(self, record: RunRecord, lease: Lease, silent: frozenset[str] = frozenset()) -> bool:
        """Like :meth:`free`, but a Ray that is silent or fails keeps nobody's cell: False, and it goes on behind it."""
        freed = self.spawn(self.free(lease, silent))
        if (await asyncio.wait({freed}, timeout=FREE_S))[0]:
            return True
        freed.add_done_callback(lambda _: self.queue.serve())
        log.error(
            "run %s ends, but Ray does not report the GPUs of lease %s free: still trying", record.run, lease.name
        )
        if record.outcome is not None:
            note = f"Ray has not reported its GPUs free for {FREE_S:g} s: nobody else gets them before it does"
            record.outcome = msgspec.structs.replace(record.outcome, notes=[*record.outcome.notes, note])
        return False

    def _finish(self, record: RunRecord, **facts: Any) -> None:
        """The run is over: its terminal state is committed, later its agent may forget it."""
        if record.state.is_terminal:
            return
        self.queue.remove(record)
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
        record.outcome = unstarted(RunFailedError(reason, hint="ask for fewer GPUs, or wait longer: --wait"))
        self._finish(record)

    async def cancel(self, record: RunRecord, reason: str, *, kill: bool = False) -> None:
        """End a run: at once while it waits, else by an interrupt; the second one (or ``kill``) kills."""
        if record.state.is_terminal or record.phase >= PHASES["released"]:
            return
        record.is_given_up |= kill or reason != INTERRUPTED
        if record.run in self.queue or record.state in (RunState.SUBMITTED, RunState.QUEUED):
            record.cancelled = reason
            self.queue.remove(record)
            record.outcome = unstarted(RunCancelledError(reason))
            self._finish(record)
            self.queue.serve()
            return
        record.interrupts += 1
        record.cancelled = record.cancelled or reason
        record.signal = "kill" if kill or record.interrupts > 1 else "interrupt"
        if record.accepted:
            await self._signal(record)

    async def _signal(self, record: RunRecord) -> None:
        name, record.signal = record.signal, ""
        lease = record.lease
        if lease is None:
            return
        try:
            await self.nodes.agent(lease.slots[0].node).signal(record.run, name)
        except ClusterError as error:
            log.warning("run %s: %s", record.run, error.message)
            record.signal = record.signal or name  # for when its node answers again

    def signal_again(self, record: RunRecord) -> None:
        """Send the signals that the node, which answers again, has not had."""
        if record.signal and record.accepted:
            self.spawn(self._signal(record))

    async def lose(self, record: RunRecord, reason: str) -> None:
        """The run's process, agent, node or cluster is gone."""
        if record.state.is_terminal or record.phase == PHASES["final"]:
            return
        self.queue.remove(record)
        log.warning("run %s is lost: %s", record.run, reason)
        if record.outcome is None or record.phase < PHASES["released"]:
            record.outcome = lost(reason)
        elif not await self._manifests.may_have_values(record.run, record.outcome):
            record.outcome = lost_results(record.run, record.outcome, reason)
        record.phase = PHASES["final"]
        if record.releasing is None:
            record.releasing = self.spawn(self.end_lease(record))
        elif record.state is RunState.PERSISTING:
            self._finish(record)
