"""A run from grant to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, assert_never

import msgspec

from ...errors import ClusterError, GpuReleaseError, RunCancelledError, RunFailedError, StoreSilentError
from ...protocol.node import RunPhase
from ...protocol.runs import Outcome, PersistWait, StepAside
from ...scheduling.decisions import Grant, Grow, MakeRoom, Wait
from ..auth.unix_users import UnixUsers
from ..cluster.agent_client import AgentDiedError
from ..cluster.agents import forget_runs
from ..cluster.lease import FREE_S, Lease, LeaseTable
from ..cluster.nodes import NodeTable
from ..cluster.placement_groups import LeaseReleaser, RayLeases
from ..db.writer import LedgerWriter
from ..queue_rules import QueueRules
from ..runs.attempts import ended_by_cancel
from ..runs.events import NotifyWhen
from ..runs.live_runs import RunTable
from ..runs.manifests import Manifests
from ..runs.outcomes import final_reason, final_state, gone_facts, is_lost, lost, lost_results, merged, unstarted
from ..runs.record import Ended, Persisting, Queued, Releasing, Running, RunRecord, Starting, Yielding
from . import gangs
from .preemption_notices import PreemptionNotices
from .requeue import Requeue, freed_at
from .run_queue import RunQueue
from .start import LeaseRecorder, RunStarter
from .tasks import BackgroundWork
from .warm_leases import WarmLeases

log = logging.getLogger(__name__)


class FinishedRuns:
    """Ended runs that their agents still remember, with the commit of their end."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._waiting: list[tuple[RunRecord, asyncio.Future[None] | None]] = []

    def add(self, record: RunRecord, committed: asyncio.Future[None] | None) -> None:
        """A run has ended; None: there is nothing to commit."""
        self._waiting.append((record, committed))

    async def forget_committed(self) -> None:
        """Let agents forget runs whose end is committed (called every few seconds)."""
        waiting, self._waiting = self._waiting, []
        over: list[RunRecord] = []
        for record, committed in waiting:
            if committed is None or (committed.done() and committed.exception() is None):
                over.append(record)
            else:
                self._waiting.append((record, committed))
        # one that does not answer is told when it does (``gateway/reconcile/stray_leases.py``)
        ready = [node for node in self._nodes.ready() if node.reachable] if over else []
        ended = {node.node: [record.attempt_id for record in over if node.host in record.view.hosts] for node in ready}
        await forget_runs(self._nodes, ended)


#: why a run is cancelled whose own cell was interrupted
INTERRUPTED = "interrupted"
#: pause before a run that Ray did not grant is tried again
_AGAIN_S = 0.5
#: an agent that died is there again within this, or its node is in trouble
_AGENT_BACK_S = 60.0
#: a run whose agent dies each time before it begins may be the reason
_MOST_PUT_BACK = 3
#: followers that are further behind than this after a run's end read from its log
_TAIL_KEPT_S = 5.0


def _is_unbegun(record: RunRecord) -> bool:
    """Tell if nothing was heard of its cell, and nobody wants it ended."""
    return isinstance(record.stage, Starting) and not record.cancellation.reason


class Lifecycle:
    """Carries out decisions, and takes runs from stage to stage; every method runs on the event loop."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        leases: LeaseTable,
        manifests: Manifests,
        warm: WarmLeases,
        ray_leases: RayLeases,
        releaser: LeaseReleaser,
        recorder: LeaseRecorder,
        rules: QueueRules,
        ledger: LedgerWriter,
        with_answer: Callable[[Wait], Wait],
        users: UnixUsers | None = None,
    ) -> None:
        self.runs = runs
        self.nodes = nodes
        self.leases = leases
        self.queue = RunQueue(
            runs,
            nodes,
            leases,
            rules,
            self._on_grant,
            self._on_expire,
            warm.give_up,
            self._on_hand_over,
            self._on_fault,
            self._on_make_room,
            self._on_grow,
            with_answer,
        )
        self.warm = warm
        self.releaser = releaser
        self._ray_leases = ray_leases
        self._manifests = manifests
        self.spawn = BackgroundWork().spawn
        self.requeue = Requeue(runs, nodes, ledger, self.queue, self.spawn)
        self.preemption_notices = PreemptionNotices(runs, nodes, rules, self.spawn, self._on_stays)
        self.finished = FinishedRuns(nodes)
        self._recorder = recorder
        self._starter = RunStarter(nodes, manifests, recorder, ray_leases, users)

    # ------------------------------------------------------------------------------------ granted
    def _on_grant(self, record: RunRecord, grant: Grant) -> None:
        if grant.lease:
            lease, kept = self.warm.take_lease(grant.lease, record.attempt_id)
            self._start_on(record, lease, on_kept=kept.session == record.view.session)
        else:
            # the group of an earlier attempt may be another run's by now
            name = self._ray_leases.group_name(str(record.attempt_id))
            self._start_on(record, self.leases.add(Lease(name, record.attempt_id, grant.placement)))

    def _start_on(self, record: RunRecord, lease: Lease, *, on_kept: bool = False) -> None:
        granted_at = time.time()
        if not lease.gpu_ids:  # first: its thread, which has the longest way, shall not wait for the others
            self._ray_leases.begin_making(lease, self.nodes.runtime)
        recorded = self._recorder.write(lease)
        # threads write this down while we wait for Ray
        written: list[asyncio.Future[Any]] = [self._manifests.create_folder(record.view.user, record.run), recorded]
        stage = Starting(lease)
        self._recorder.to_starting(record, lease, stage, granted_at, on_kept=on_kept)
        if record.stage is stage:
            lease.granting = stage.order = self.spawn(self._start(record, lease, written))
        else:  # refused: nobody is to have it
            self.spawn(self.free_and_serve(lease))

    async def _start(self, record: RunRecord, lease: Lease, written: list[asyncio.Future[Any]]) -> None:
        try:
            await self._starter.execute_start(record, lease, written)
        except (ClusterError, StoreSilentError) as error:
            await self._after_failed_start(record, lease, error)
        except GpuReleaseError as error:
            await self._end_unstarted(record, error)
        except Exception as error:  # a fault of ours must not keep GPUs: the run fails and lets go
            log.exception("run %s could not be started", record.run)
            await self._end_unstarted(record, ClusterError(f"the gateway could not start the run: {error!r}"))
        else:
            record.accept()
            if record.cancellation.unsent:
                await self._signal(record)

    async def _end_unstarted(self, record: RunRecord, error: GpuReleaseError) -> None:
        stage = None if record.is_ending else self._to_releasing(record, unstarted(error))
        if stage is not None:
            stage.is_final, stage.ending = True, asyncio.current_task()
            await self._end_lease(record, stage)

    async def _after_failed_start(self, record: RunRecord, lease: Lease, error: GpuReleaseError) -> None:
        """Not granted by Ray, or the store hangs: back to its place in the queue. Its agent died: whether the cell
        began is unknown. The ledger has refused it: it is nobody's, and ends.
        """
        if record.refused_by_ledger:
            await self._end_unstarted(record, error)
            return
        is_ordered = not isinstance(error, StoreSilentError)
        begun = is_ordered and await self._may_have_begun(record, lease)
        if record.is_ending:  # it was given up meanwhile
            return
        if not isinstance(record.stage, Starting) or (begun and not record.cancellation.reason):
            died_on = self._only_host(lease) if isinstance(error, AgentDiedError) else ""
            await self.lose(record, f"the node could not start the run: {error.message}", died_on=died_on)
            return
        record.stage.lease = None
        if record.cancellation.reason:
            await self._free_in_time(record, lease, await gangs.members_left(self.nodes, lease))
            await self._end_unstarted(record, RunCancelledError(record.cancellation.reason))
            return
        log.warning("run %s waits again: %s", record.run, error.message)
        until = None if is_ordered else self._manifests.threads.wait_until_answered
        self.wait_again(record, lease, error.message, _AGAIN_S, until)

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
        self.wait_again(record, lease, reason, _AGAIN_S)
        return True

    async def _may_have_begun(self, record: RunRecord, lease: Lease) -> bool:
        """The agent of its first node knows, which may be restarting just now."""
        first, deadline = lease.slots[0].node, time.monotonic() + _AGENT_BACK_S
        while not record.cancellation.reason and not record.is_ending:
            try:
                return await self.nodes.agent(first).has_begun(lease.attempt_id)
            except ClusterError:
                node = self.nodes.find(first)
                if node is None or not node.alive or time.monotonic() > deadline:
                    break
            await asyncio.sleep(_AGAIN_S)
        return bool(lease.gpu_ids)

    def wait_again(
        self,
        record: RunRecord,
        lease: Lease | None,
        reason: str,
        pause_s: float = 0.0,
        until: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """A run that has not begun goes back to its place; it is granted again once its lease, if any, is gone.

        A node that cannot be heard may have its order, and begin it late: what is ordered next is a newer attempt.
        """
        shape, starts = record.shape_on(None), record.view.vain_starts + 1
        self.runs.change(
            record, Queued(), at_once=True, reason=reason, granted_at=None, hosts=[], vain_starts=starts, **shape
        )
        if not isinstance(record.stage, Queued):  # refused
            return
        self.queue.put_back(record)
        if lease is not None:
            self.releaser.freeing.add(lease)
        self.spawn(self._resume(record, lease, until or partial(asyncio.sleep, pause_s)))

    async def _resume(self, record: RunRecord, lease: Lease | None, pause: Callable[[], Awaitable[None]]) -> None:
        try:
            if lease is not None:
                await self._take_back(lease)
            await pause()
        except Exception:  # a fault of ours must not let it wait for ever
            log.exception("run %s waits again, but what it had is not known to be free", record.run)
        self.queue.resume(record)

    async def _take_back(self, lease: Lease) -> None:
        """No node goes on with it, nor has heard of its accelerators, before it is granted others."""
        gangs.abandon(self.nodes, lease)
        await self.releaser.free(lease, await gangs.members_left(self.nodes, lease))

    async def on_unbegun(self, record: RunRecord, reason: str) -> None:
        """The leader of a gang has forgotten it, since nothing of it had begun and it lost processes."""
        if record.lease is not None and record.lease.granting is not None:
            await asyncio.wait({record.lease.granting})  # it may be told before all nodes have answered
        lease = record.lease
        if not record.accepted or lease is None or await self.begin_again(record, reason):
            return
        with contextlib.suppress(ClusterError):  # else its node is in trouble, and what becomes of that is seen
            known = {run.attempt_id for run in await self.nodes.agent(lease.slots[0].node).runs()}
            if record.lease is lease and lease.attempt_id not in known:  # cancelled, or it has been tried often enough
                await self.lose(record, reason)

    # ------------------------------------------------------------------------------------- phases
    def on_phase(self, record: RunRecord, message: RunPhase, *, is_news: bool = True) -> asyncio.Task[None] | None:
        """Take in what a node reports; repeated or late phases do nothing. Returns the task that ends the lease.

        ``is_news``: it happens now. What has happened while this gateway was away counts against no node.
        """
        if message.attempt_id != record.attempt_id or not record.expects(message.phase):
            return None
        if is_news and message.outcome is not None:
            self._note_death(record, message.outcome, message.at_s)
        if message.phase == "running":
            self.runs.change(record, Running(record.lease), running_at=message.at_s)
        elif message.phase == "ended":
            self._to_releasing(record)
        elif isinstance(record.stage, Persisting):
            self._finish(record, merged(record.stage.outcome, message.outcome))
        else:
            return self._on_outcome(record, message)
        return None

    def _note_death(self, record: RunRecord, outcome: Outcome, at_s: float) -> None:
        """Blame the host of the rank that died, not those of the gang's other ranks."""
        if is_lost(outcome) and not is_lost(record.outcome):
            host = gangs.failed_host(record, outcome, self.nodes)
            if host:
                record.note_death(host, at_s)

    def _on_outcome(self, record: RunRecord, message: RunPhase) -> asyncio.Task[None] | None:
        """All processes are gone (``released``), or results are durable, too (``final``)."""
        stage = self._to_releasing(record, merged(record.outcome, message.outcome))
        if stage is None:
            return None
        stage.is_final = message.phase == "final"
        return self._begin_ending(record, stage)

    def _begin_ending(self, record: RunRecord, stage: Releasing) -> asyncio.Task[None]:
        if stage.ending is None:
            stage.ending = self.spawn(self._end_lease(record, stage))
        return stage.ending

    def on_waits(self, record: RunRecord, wait: PersistWait) -> None:
        """Take in why a run's results are not durable yet."""
        record.wait_for(wait)
        if isinstance(record.stage, Persisting):
            self.runs.change(record, waits_for=wait)

    def end_unkept(self, record: RunRecord, reason: str) -> None:
        """Nobody waits for a persisting run's results any more, and no node that is there keeps them."""
        self._finish(record, unstarted(RunCancelledError(reason)))

    def _to_releasing(self, record: RunRecord, outcome: Outcome | None = None) -> Releasing | None:
        """The stage in which its lease ends, with what is known of its outcome; None when that is over, or not due."""
        match record.stage:
            case Starting(lease=lease) | Running(lease=lease) | Yielding(lease=lease):
                running_at = record.view.running_at or (outcome.started_s if outcome is not None else None)
                stage = Releasing(lease, outcome)
                self.runs.change(record, stage, told=NotifyWhen.SOON, running_at=running_at)
                return stage
            case Releasing() as stage:
                stage.outcome = outcome or stage.outcome
                return stage
            case Queued() | Persisting() | Ended():
                return None
            case _:
                assert_never(record.stage)

    async def _end_lease(self, record: RunRecord, stage: Releasing) -> None:
        """Give the run's GPUs back (or straight to the next run, or keep them warm), then show its outcome."""
        keeps = record.request.keep_s > 0
        if keeps:
            await self.warm.until_granted(record)
        lease, stage.lease = stage.lease, None
        silent = await gangs.members_left(self.nodes, lease) if lease is not None else frozenset[str]()
        kept = None
        if keeps and lease is not None and not silent:
            kept = self.warm.keep_lease(record, lease, self.queue.leaves)
        handed = lease is not None and not kept and not silent and await self._hand_over(lease)
        freed = True
        if lease is not None and not kept and not handed:
            freed = await self._free_in_time(record, lease, silent)
        outcome = stage.outcome = stage.outcome or Outcome(status="lost")
        if not freed:
            note = f"Ray has not reported its GPUs free for {FREE_S:g} s: nobody else gets them before it does"
            outcome = stage.outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, note])
        gone: dict[str, Any] = {}
        if self._goes_on(record, outcome):
            self._go_back_when_saved(record, stage, outcome, lease)
            (self.queue.serve_soon if handed else self.queue.serve)()
            return
        if lease is not None and freed:
            also = self.warm.written(lease) if kept else None
            gone = {**gone_facts(outcome, lease.gone_at or time.time()), "kept": kept, "also": also}
        elif stage.gone_at is not None:
            gone = gone_facts(outcome, stage.gone_at)
        if stage.is_final:
            self._finish(record, outcome, stage.gone_at, **gone)
        else:
            gone |= {"outcome": outcome, "reason": final_reason(outcome, record.cancellation.reason)}
            self.runs.change(record, Persisting(outcome, stage.wait), waits_for=stage.wait, **gone)
        (self.queue.serve_soon if handed else self.queue.serve)()

    def _goes_on(self, record: RunRecord, outcome: Outcome) -> bool:
        """Tell if another attempt follows one that ends so."""
        return outcome.status != "ok" and self.requeue.goes_on(record, outcome)

    def _go_back_when_saved(self, record: RunRecord, stage: Releasing, outcome: Outcome, lease: Lease | None) -> None:
        """It is not over, so clients are not told of an end; it waits for its next attempt once its save is durable."""
        gone_at = freed_at(record, lease.gone_at if lease is not None else stage.gone_at)
        if stage.is_final:
            self.requeue.go_back(record, outcome, gone_at)
        else:
            self.runs.change(record, Persisting(outcome, stage.wait, gone_at), waits_for=stage.wait)

    def end_again(self, record: RunRecord) -> None:
        """Show the outcome of a run whose ending has failed."""
        if isinstance(record.stage, Releasing):
            record.stage.ending = self.spawn(self._end_lease(record, record.stage))

    async def _hand_over(self, lease: Lease) -> bool:
        """Hand the group over as it is, with no word to Ray, when the next run wants exactly these slots."""
        if not lease.gpu_ids and lease.granting not in (None, asyncio.current_task()):
            await asyncio.wait({lease.granting})  # it ended before Ray's word of them came here
        is_aside = any(self.nodes.is_aside(slot.node, lease.ids_on(slot.node)) for slot in lease.slots)
        return bool(lease.gpu_ids) and not is_aside and await self.queue.offer(lease)

    def _on_hand_over(self, lease: Lease, successor: RunRecord) -> None:
        lease.gone_at = time.time()
        self._start_on(successor, self.leases.add(lease.handed_to(successor.attempt_id)))

    async def _free_in_time(self, record: RunRecord, lease: Lease, silent: frozenset[str] = frozenset()) -> bool:
        """Free a lease, but a Ray that is silent or fails keeps nobody's cell: False, and it goes on behind it."""
        freed = self.spawn(self.releaser.free(lease, silent))
        if (await asyncio.wait({freed}, timeout=FREE_S))[0]:
            return True
        freed.add_done_callback(lambda _: self.queue.serve())
        log.error(
            "run %s ends, but Ray does not report the GPUs of lease %s free: still trying", record.run, lease.name
        )
        return False

    async def free_and_serve(self, lease: Lease) -> None:
        """Give back a lease that is nobody's; its GPUs are the queue's."""
        await self.releaser.free(lease)
        self.queue.serve()

    def _finish(self, record: RunRecord, outcome: Outcome, at_s: float | None = None, **facts: Any) -> None:
        """The run is over (None: now): its terminal state is committed, later its agent may forget it."""
        if isinstance(record.stage, Ended):
            return
        if self._goes_on(record, outcome):
            self.requeue.go_back(record, outcome, freed_at(record, at_s))
            self.queue.serve()
            return
        self.queue.remove(record)
        cancelled = record.cancellation.reason
        if outcome.status != "ok" or record.save is not None:
            outcome, past = self.requeue.home(record, ended_by_cancel(outcome, cancelled))
            facts = past | facts
        facts |= {"notice": None} if record.view.notice is not None else {}
        facts |= {"outcome": outcome, "reason": final_reason(outcome, cancelled), "position": None, "waits_for": None}
        was_on_node, stage = bool(record.view.hosts), Ended(final_state(outcome, cancelled), outcome)
        committed = self.runs.change(record, stage, finished_at=at_s or time.time(), **facts)
        asyncio.get_running_loop().call_later(_TAIL_KEPT_S, record.tail.clear)
        if was_on_node and record.state.is_terminal:
            self.finished.add(record, committed)

    # -------------------------------------------------------------------- cancelled, expired, lost
    def _on_expire(self, record: RunRecord, reason: str) -> None:
        waited = f" · {record.view.reason}" if record.view.reason else ""
        hint = f"{'ask for fewer GPUs, or ' if record.view.gpus > 1 else ''}wait longer: --wait"
        self._finish(record, unstarted(RunFailedError(f"{reason}{waited}", hint=hint)))

    def _on_make_room(self, room: MakeRoom) -> bool:
        return self.preemption_notices.make_room(room)

    def _on_grow(self, grow: Grow) -> bool:
        return self.preemption_notices.grow(grow)

    def _on_stays(self, record: RunRecord, notice: StepAside | None) -> None:
        """The run that was to have its GPUs waits as before, and it moves to no other ones."""
        self.queue.take_back(record.run, notice.run if notice is not None else "")

    def _on_fault(self, record: RunRecord, fault: Exception) -> None:
        """The queue itself failed at a run: it fails, and lets go of what it has."""
        error, lease = ClusterError(f"the gateway could not start the run: {fault!r}"), self.leases.of_run(record.run)
        if not isinstance(record.stage, Queued):
            self.spawn(self._end_unstarted(record, error))
            return
        self._finish(record, unstarted(error))
        if lease is not None:
            self.spawn(self.free_and_serve(lease))

    async def cancel(self, record: RunRecord, reason: str, *, kill: bool = False) -> None:
        """End a run: at once while it waits, else by an interrupt; the second one (or ``kill``) kills."""
        wish = record.cancellation
        if record.outcome is not None and self.requeue.goes_on(record, record.outcome):
            wish.reason = reason  # it has stepped aside: what is saved comes home
            return
        if record.outcome is not None or isinstance(record.stage, Ended):
            return
        wish.is_given_up |= kill or reason != INTERRUPTED
        if isinstance(record.stage, Queued):
            wish.reason = reason
            self._finish(record, unstarted(RunCancelledError(reason)))
            self.queue.serve()
            return
        wish.interrupts += 1
        wish.reason = wish.reason or reason
        wish.unsent = "kill" if kill or wish.interrupts > 1 else "interrupt"
        if record.accepted:
            await self._signal(record)

    async def _signal(self, record: RunRecord) -> None:
        lease, wish = record.lease, record.cancellation
        if lease is None:
            return
        name, wish.unsent = wish.unsent, ""
        try:
            await self.nodes.agent(lease.slots[0].node).signal(lease.attempt_id, name)
        except ClusterError as error:
            log.warning("run %s: %s", record.run, error.message)
            wish.unsent = wish.unsent or name  # for when its node answers again

    def signal_again(self, record: RunRecord) -> None:
        """Send the signals that the node, which answers again, has not had."""
        if record.cancellation.unsent and record.accepted:
            self.spawn(self._signal(record))

    def _only_host(self, lease: Lease) -> str:
        """The host of a lease on one node; empty for a gang over nodes, any of which may be to blame."""
        node = self.nodes.find(lease.slots[0].node) if len(lease.slots) == 1 else None
        return node.host if node is not None else ""

    async def lose(self, record: RunRecord, reason: str, *, died_on: str = "", at_s: float | None = None) -> None:
        """The run's process, agent, node or cluster is gone. A run that had ended before loses its results at most.

        ``died_on``: the host that is to blame; empty: none is, as far as anybody knows. ``at_s``: when its GPUs were
        gone; None: when they are given back.
        """
        before, known = record.stage, record.outcome
        if isinstance(before, Ended) or (isinstance(before, Releasing) and before.is_final):
            return
        if record.run in self.queue:  # it has gone back there meanwhile: nothing of it is anywhere
            return
        log.warning("run %s is lost: %s", record.run, reason)
        if known is None:
            known = lost(reason)
        elif not await self._manifests.may_have_values(record.view.user, record.run, known):
            known = lost_results(record.run, known, reason)
        if died_on and is_lost(known):
            record.note_death(died_on, time.time())
        match record.stage:
            case Starting() | Running() | Yielding() | Releasing():
                stage = self._to_releasing(record, known)
                if stage is not None:
                    stage.is_final, stage.gone_at = True, at_s
                    self._begin_ending(record, stage)
            case Queued() | Persisting():
                self._finish(record, known, at_s)
                self.queue.serve()
            case Ended():  # while it was looked for its values
                pass
            case _:
                assert_never(record.stage)
