"""Carries out what follows for runs: :meth:`Lifecycle.hear` takes an event through ``gateway/runs/machine.py``, shows
and commits what a run is then, and has queue, nodes, Ray and ledger do the rest. What they answer are events again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from sqlalchemy.engine import Connection

from ...errors import ClusterError, GpuReleaseError, RunFailedError, StoreSilentError
from ...host.background import BackgroundWork
from ...presentation.wording import reason_words
from ...protocol.node import AttemptId
from ...protocol.runs import Outcome, Preemption, Reason, RunView
from ...scheduling.decisions import Grant, Grow, MakeRoom, Wait
from ...scheduling.reasons import why_preempted
from ..auth.unix_users import UnixUsers
from ..cluster.agent_client import AgentDiedError
from ..cluster.agents import forget_runs
from ..cluster.environment_builds import EnvironmentBuilds
from ..cluster.lease import FREE_S, Lease, LeaseTable
from ..cluster.nodes import NodeTable
from ..cluster.placement_groups import LeaseReleaser, RayLeases
from ..db.database import drop_save, put_save
from ..db.run_times import drop_attempt, put_attempt
from ..db.writer import LedgerWriter, Write
from ..queues_file_watch import QueueRules
from ..runs import machine
from ..runs.events import NotifyWhen
from ..runs.live_runs import RunTable
from ..runs.machine import Event
from ..runs.manifests import Manifests
from ..runs.outcomes import given_up
from ..runs.record import Preempting, Queued, Releasing, RunRecord, RunSnapshot, Starting
from . import gangs
from .environment_waits import EnvironmentWaits
from .run_queue import RunQueue
from .start import LetDriverIn, RunStarter
from .warm_leases import WarmLeases

log = logging.getLogger(__name__)


#: pause before a run that Ray did not grant is tried again
_AGAIN_S = 0.5
#: between two looks at a run that was preempted
_LOOK_S = 1.0
#: a run that cannot be preempted just now is not asked by the scheduler for so long
_SPARED_S = 60.0
#: an agent that died is there again within this, or its node is in trouble
_AGENT_BACK_S = 60.0
#: followers that are further behind than this after a run's end read from its log
_TAIL_KEPT_S = 5.0


class Lifecycle:
    """Takes runs from stage to stage, and carries out what that means; every method runs on the event loop."""

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        leases: LeaseTable,
        manifests: Manifests,
        warm: WarmLeases,
        ray_leases: RayLeases,
        releaser: LeaseReleaser,
        rules: QueueRules,
        ledger: LedgerWriter,
        with_answer: Callable[[Wait], Wait],
        environments: EnvironmentBuilds,
        let_driver_in: LetDriverIn,
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
            lambda record: environments.nodes_without(record.request.environment, record.view.user),
        )
        self.warm = warm
        self.releaser = releaser
        self._rules = rules
        self._ray_leases = ray_leases
        self._manifests = manifests
        background = BackgroundWork()
        #: what a run cannot do without is done until it is done
        self.spawn, self._until_done = background.spawn, background.until_done
        self._environment_waits = EnvironmentWaits(
            runs, nodes, leases, environments, self._queue, self.queue.tell_again, self.hear
        )
        self._starter = RunStarter(
            runs, nodes, leases, manifests, ledger, ray_leases, rules, environments, let_driver_in, users
        )

    def enqueue(self, record: RunRecord) -> None:
        """Have a run wait: for the environment that it needs, then for its GPUs."""
        if record.request.environment is not None:
            self._environment_waits.begin(record, record.request.environment)
        else:
            self._queue(record)

    def on_node_up(self) -> None:
        """A node takes runs from now on, or builds what they need."""
        self._environment_waits.on_node_up()
        self.queue.serve()

    def _queue(self, record: RunRecord) -> None:
        self.queue.add(record)
        self.queue.serve()

    def hear(self, record: RunRecord, event: Event) -> None:
        """Something has happened to a run."""
        before = record.snapshot
        after, effects = machine.step(before, event, time.time())
        committed = None
        if after.view is before.view:
            record.snapshot = after
        else:
            committed = self._show(record, before, after, effects)
        for effect in effects:
            self._carry_out(record, effect, committed)

    def _show(
        self, record: RunRecord, before: RunSnapshot, after: RunSnapshot, effects: tuple[machine.Effect, ...]
    ) -> asyncio.Future[None] | None:
        is_step = after.stage.state is not before.stage.state
        if is_step:
            log.info("run %s is %s%s", record.run, after.view.state, after.view.reason and f": {after.view.reason}")
        if isinstance(after.stage, Queued) and not after.request.payload:  # it was let go of when a node had it
            after = self.runs.reloaded(after)
        # what follows is expected within milliseconds
        told = NotifyWhen.SOON if is_step and isinstance(after.stage, Starting | Releasing) else NotifyWhen.NOW
        commits = [effect for effect in effects if isinstance(effect, machine.Commit)]
        writes = [write for commit in commits for write in self._writes_of(before.view, commit)]
        return self.runs.put(record, after, told=told, also=partial(_all, writes) if commits else None)

    def _writes_of(self, view: RunView, commit: machine.Commit) -> Iterator[Write]:
        """Writes for the thread of the ledger; of a lease that is kept, as it is now."""
        if commit.ended is not None:
            yield partial(put_attempt, view=view, ended=commit.ended)
        if commit.save is not None:
            yield partial(put_save, run=view.run, save=commit.save)
        if commit.undone is not None:
            yield partial(drop_attempt, run=view.run, number=commit.undone)
        if commit.is_home:
            yield partial(drop_save, run=view.run)
        if commit.kept is not None:
            yield self.warm.written(commit.kept)

    def _carry_out(self, record: RunRecord, effect: machine.Effect, committed: asyncio.Future[None] | None) -> None:
        match effect:
            case machine.Refused(why):
                log.info("run %s: %s", record.run, why)
            case machine.Commit():  # it was, when the run was shown
                pass
            case machine.Start(lease):
                lease.granting = self.spawn(self._start(record, lease))
            case machine.EndLease():
                self._until_done(self._end_lease, record, effect)
            case machine.GiveBack(lease):
                self._until_done(self.free_and_serve, lease)
            case machine.Abandon(attempt_id, hosts):
                for node in self.nodes.ready():
                    if node.host in hosts and node.agent is not None:
                        self.nodes.agent(node.node).abandon(attempt_id)
            case machine.GoBack():
                self._go_back(record, effect, committed)
            case machine.WaitAgain(lease, until_store):
                self.queue.put_back(record)
                if lease is not None:
                    self.releaser.freeing.add(lease)
                self._until_done(self._resume, record, lease, until_store)
            case machine.Enqueue():
                self.enqueue(record)
            case machine.Finish(hosts):
                self.queue.remove(record)
                self.queue.serve_soon()
                asyncio.get_running_loop().call_later(_TAIL_KEPT_S, record.tail.clear)
                self.spawn(self._forget(record.attempt_id, hosts, committed))
            case machine.SendSignal():
                self.spawn(self._signal(record, effect))
            case machine.WatchNotice(notice):
                self._until_done(self._watch, record, notice)
            case machine.TellNotice(lease):
                self.spawn(self._tell(record, lease))
            case machine.Stays(notice, spares):
                if spares:
                    record.spared_until_s = time.monotonic() + _SPARED_S
                # the run that was to have its GPUs waits as before, and it moves to no other ones
                self.queue.take_back(record.run, notice.run if notice is not None else "")
            case machine.Ask(event):
                self._until_done(self._find_out, record, event)
            case machine.KeepResults():
                self.spawn(self._keep_results(record, effect))

    # ---------------------------------------------------------------------------------- the queue's decisions
    def _on_grant(self, record: RunRecord, grant: Grant) -> None:
        if grant.lease:
            lease, kept = self.warm.take_lease(grant.lease, record.attempt_id)
            self._start_on(record, lease, on_kept=kept.session == record.view.session)
        else:
            # the group of an earlier attempt may be another run's by now
            name = self._ray_leases.group_name(str(record.attempt_id))
            self._start_on(record, self.leases.add(Lease(name, record.attempt_id, grant.placement)))

    def _start_on(self, record: RunRecord, lease: Lease, *, on_kept: bool = False) -> None:
        self._starter.prepare(record, lease)
        self.hear(record, machine.Granted(lease, {**self._starter.facts_of(lease), "on_kept": on_kept}))

    def _on_expire(self, record: RunRecord, reason: str) -> None:
        waited = f" · {record.view.reason}" if record.view.reason else ""
        hint = f"{'ask for fewer GPUs, or ' if record.view.gpus > 1 else ''}wait longer: --wait"
        self.hear(record, machine.Unstarted(RunFailedError(f"{reason}{waited}", hint=hint)))

    def _on_fault(self, record: RunRecord, fault: Exception) -> None:
        """The queue itself failed at a run: it fails, and lets go of what it has."""
        error = ClusterError(f"the gateway could not start the run: {fault!r}")
        self.hear(record, machine.Unstarted(error, self.leases.of_run(record.run)))

    def _on_hand_over(self, lease: Lease, successor: RunRecord) -> None:
        lease.gone_at = time.time()
        self._start_on(successor, self.leases.add(lease.handed_to(successor.attempt_id)))

    def _on_make_room(self, room: MakeRoom) -> bool:
        """Preempt all these runs for another; False: one of them cannot be preempted, so none is."""
        records = [record for asked in room.preempts if (record := self.runs.get(asked.run)) and record.may_be_taken]
        if len(records) < len(room.preempts):
            return False
        for record, asked in zip(records, room.preempts, strict=True):
            hosts = [node.host for _, name in asked.moves if (node := self.nodes.find(name)) is not None]
            self.preempt(record, asked.action, why_preempted(asked, hosts), run=asked.beneficiary, user=asked.user)
        return True

    def _on_grow(self, grow: Grow) -> bool:
        """Preempt an elastic run, since it can go on with more GPUs. False: it cannot be preempted now."""
        record = self.runs.get(grow.run)
        if record is None or not record.may_be_taken:
            return False
        gpus = record.view.gpus + sum(slot.gpus for slot in grow.placement)
        self.preempt(record, "grow", f"to go on with {gpus} GPUs")
        return True

    def preempt(self, record: RunRecord, action: str, reason: str | Reason, *, run: str = "", user: str = "") -> None:
        """Preempt a run; nothing happens to one that is being preempted.

        Raises :class:`ConflictError` for a run that cannot be asked.
        """
        if (error := machine.why_not_preempted(record.snapshot)) is not None:
            raise error
        now_s, words = time.time(), reason_words(reason, record.view.user)
        grace_s = self._rules.file.tree.queues[record.view.queue].grace_s
        self.hear(record, machine.Preempt(Preemption(action, words, now_s, now_s + grace_s, run, user), reason))

    # ------------------------------------------------------------------------------------ start, and again
    async def _start(self, record: RunRecord, lease: Lease) -> None:
        attempt_id = lease.attempt_id
        try:
            await self._starter.execute_start(record, lease)
        except GpuReleaseError as error:
            may_come = isinstance(error, ClusterError | StoreSilentError) and not record.refused_by_ledger
            until_store = isinstance(error, StoreSilentError)  # nothing has been ordered
            begun = False if until_store else None
            died_on = self._only_host(lease) if isinstance(error, AgentDiedError) else ""
            self.hear(record, machine.StartFailed(attempt_id, error, not may_come, begun, died_on, until_store))
        except Exception as error:  # a fault of ours must not keep GPUs: the run fails and lets go
            log.exception("run %s could not be started", record.run)
            fault = ClusterError(f"the gateway could not start the run: {error!r}")
            self.hear(record, machine.StartFailed(attempt_id, fault, is_final=True))
        else:
            self.hear(record, machine.Accepted(attempt_id))

    def _only_host(self, lease: Lease) -> str:
        """The host of a lease on one node; empty for a gang over nodes, any of which may be to blame."""
        node = self.nodes.find(lease.slots[0].node) if len(lease.slots) == 1 else None
        return node.host if node is not None else ""

    async def _find_out(self, record: RunRecord, event: machine.Lost | machine.Forgotten | machine.StartFailed) -> None:
        if isinstance(event, machine.Lost):
            view = record.view
            is_there = await self._manifests.may_have_values(view.user, view.run, record.outcome)
            self.hear(record, replace(event, has_values=is_there))
        else:
            self.hear(record, replace(event, has_begun=await self._may_have_begun(record, event.attempt_id)))

    async def _may_have_begun(self, record: RunRecord, attempt_id: AttemptId) -> bool:
        """The agent of its first node knows, which may be restarting just now."""
        deadline = time.monotonic() + _AGENT_BACK_S
        while (lease := record.lease) is not None and lease.attempt_id == attempt_id and record.outcome is None:
            first = lease.slots[0].node
            if record.cancellation.reason:
                return bool(lease.gpu_ids)
            try:
                return await self.nodes.agent(first).has_begun(attempt_id)
            except ClusterError:
                node = self.nodes.find(first)
                if node is None or not node.alive or time.monotonic() > deadline:
                    return bool(lease.gpu_ids)
            await asyncio.sleep(_AGAIN_S)
        return True

    def _go_back(self, record: RunRecord, effect: machine.GoBack, committed: asyncio.Future[None] | None) -> None:
        log.info("run %s goes on later, after its attempt %d", record.run, effect.ended.attempt)
        record.asking.clear()
        # asked for whoever waits: at its age it would be next at once
        self.queue.put_back(record, after_others=effect.after_others)
        self.spawn(self._forget(effect.ended, effect.hosts, committed))
        if record.request.environment is None:
            self.queue.resume(record)
        else:
            self._until_done(self._resume_when_built, record)

    async def _resume_when_built(self, record: RunRecord) -> None:
        await self._environment_waits.until_built(record)
        self.queue.resume(record)

    async def _forget(self, ended: AttemptId, hosts: list[str], committed: asyncio.Future[None] | None) -> None:
        """Its nodes forget an attempt that is over, once the ledger has its end: until then only they know of it. One
        that does not hear it does when it is compared with the ledger, or is given the next one.
        """
        if committed is not None:
            await committed
        nodes = [node.node for node in self.nodes.ready() if node.host in hosts and node.reachable]
        await forget_runs(self.nodes, {node: [ended] for node in nodes})

    async def _resume(self, record: RunRecord, lease: Lease | None, until_store: bool) -> None:
        """No node goes on with it, nor has heard of its accelerators, before it is granted others."""
        if lease is not None:
            gangs.abandon(self.nodes, lease)
            await self.free_and_serve(lease, await gangs.ranks_left(self.nodes, lease, leader_has=True))
        await (self._manifests.threads.wait_until_answered() if until_store else asyncio.sleep(_AGAIN_S))
        await self._resume_when_built(record)

    # -------------------------------------------------------------------------------------- while it runs
    async def _signal(self, record: RunRecord, signal: machine.SendSignal) -> None:
        attempt_id = signal.lease.attempt_id
        try:
            await self.nodes.agent(signal.lease.slots[0].node).signal(attempt_id, signal.name, signal.reason)
        except ClusterError as error:
            log.warning("run %s: %s", record.run, error.message)
            if signal.reason == machine.INTERRUPTED:
                self.hear(record, machine.Unheard(attempt_id, signal.name))

    async def _watch(self, record: RunRecord, notice: Preemption) -> None:
        """Look at a run until it has stopped, or need not any more."""
        while isinstance(record.stage, Preempting) and record.stage.notice is notice:
            # one that a user has asked frees its GPUs for anybody
            waits = self.runs.get(notice.run) if notice.run else None
            is_needed = not notice.run or (waits is not None and isinstance(waits.stage, Queued))
            self.hear(record, machine.NoticeDue(record.attempt_id, is_needed))
            left_s = notice.deadline - time.time()
            await asyncio.sleep(min(_LOOK_S, left_s) if left_s > 0 else _LOOK_S)

    async def _tell(self, record: RunRecord, lease: Lease) -> None:
        is_taken = None
        try:
            is_taken = await self.nodes.agent(lease.slots[0].node).step_aside(lease.attempt_id)
        except ClusterError as error:
            log.warning("run %s has not heard its notice: %s", record.run, error.message)
        self.hear(record, machine.NoticeHeard(lease.attempt_id, is_taken))

    # --------------------------------------------------------------------------------------------- its end
    async def _end_lease(self, record: RunRecord, effect: machine.EndLease) -> None:
        """Give the run's GPUs back (or straight to the next run, or keep them warm)."""
        lease, keeps = effect.lease, record.request.keep_s > 0
        if lease is None:
            self.hear(record, machine.LeaseGone(record.attempt_id, None))
            self.queue.serve()
            return
        if keeps:
            await self.warm.until_granted(record)
        silent = await gangs.ranks_left(self.nodes, lease, leader_has=effect.is_clean)
        may_stay = effect.is_clean and not silent
        kept = self.warm.keep_lease(record, lease, self.queue.leaves) if keeps and may_stay else None
        handed = not kept and may_stay and await self._hand_over(lease)
        note = ""
        if not (kept or handed or await self._free_in_time(record, lease, silent)):
            note = f"Ray has not reported its GPUs free for {FREE_S:g} s: nobody else gets them before it does"
        gone_at = None if note else lease.gone_at or time.time()
        self.hear(record, machine.LeaseGone(record.attempt_id, gone_at, kept, note))
        (self.queue.serve_soon if handed else self.queue.serve)()

    async def _hand_over(self, lease: Lease) -> bool:
        """Hand the group over as it is, with no word to Ray, when the next run wants exactly these slots."""
        if not lease.gpu_ids and lease.granting is not None:
            await asyncio.wait({lease.granting})  # it ended before Ray's word of them came here
        is_aside = any(self.nodes.is_aside(slot.node, lease.ids_on(slot.node)) for slot in lease.slots)
        return bool(lease.gpu_ids) and not is_aside and await self.queue.offer(lease)

    async def _free_in_time(self, record: RunRecord, lease: Lease, silent: frozenset[str]) -> bool:
        """Free a lease, but a Ray that is silent or fails keeps nobody's cell: False, and it goes on behind it."""
        freed = self.spawn(self.releaser.free(lease, silent))
        if (await asyncio.wait({freed}, timeout=FREE_S))[0]:
            return True
        freed.add_done_callback(lambda _: self.queue.serve())
        log.error(
            "run %s ends, but Ray does not report the GPUs of lease %s free: still trying", record.run, lease.name
        )
        return False

    async def free_and_serve(self, lease: Lease, silent: frozenset[str] = frozenset()) -> None:
        """Give back a lease that is nobody's; its GPUs are the queue's."""
        await self.releaser.free(lease, silent)
        self.queue.serve()

    async def give_up_results(self, record: RunRecord, reason: Reason) -> None:
        """End the wait for a persisting run's results: they are dropped.

        Raises :class:`ClusterError` when the node that keeps them does not answer.
        """
        before, nodes = record.cancellation.reason, [n for n in self.nodes.ready() if n.host in record.view.hosts]
        self.hear(record, machine.GiveUp(given_up(record.outcome or Outcome(status="ok"), reason)))
        agents, words = [self.nodes.agent(node.node) for node in nodes], reason_words(reason)
        dropped = await asyncio.gather(*(agent.give_up_results(record.attempt_id, words) for agent in agents))
        if not nodes:  # what a node that is away keeps, it drops when it comes back
            self.hear(record, machine.Unkept())
        elif not any(dropped):  # they are durable by now
            self.hear(record, machine.GiveUp(before))

    async def _keep_results(self, record: RunRecord, effect: machine.KeepResults) -> None:
        event = effect.event
        try:
            folder = self._manifests.folder(record.view.user, record.run)
            await self.nodes.agent(event.node).keep_results(event.attempt_id, folder, effect.outcome)
        except ClusterError as error:
            log.warning("run %s: %s", record.run, error.message)
            self.hear(record, machine.Lost(event.attempt_id, event.lost, event.died_on))


def _all(writes: list[Write], connection: Connection) -> None:
    for write in writes:
        write(connection)
