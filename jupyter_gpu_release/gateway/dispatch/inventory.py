"""``Inventory``: keeps the scheduler in step with what there is, by the tables of runs, leases and nodes.

It compares before each pass instead of being told of each change, so no change can be missed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...protocol.runs import RunView
from ...protocol.states import LeaseState
from ...scheduling.learned_run_times import LearnedRunTimes
from ...scheduling.queues.queues_file import QueuesFile
from ...scheduling.queues.usage import FadingUse, by_queue
from ...scheduling.resource_requests import parts_on, to_run
from ...scheduling.scheduler import Scheduler
from ...scheduling.state import ClusterSnapshot
from ...scheduling.warm_leases import Asker, HeldLease, KeepTerms
from ...scheduling.workload import GPU, Node, Rank, Run, in_thousandths
from ..cluster.lease import FREE_S, Lease, LeaseTable
from ..cluster.nodes import Node as ClusterNode
from ..cluster.nodes import NodeTable, away_reason, left_s
from ..runs.attempts import blamed_hosts
from ..runs.record import Preempting, RunRecord

log = logging.getLogger(__name__)

#: an elastic run is not asked to grow before it has run for so long
_GROWS_AFTER_S = 60.0
#: how often the scheduler is told what was used of late
_USE_TOLD_S = 10.0


@dataclass(frozen=True)
class _Known:
    """A lease as the scheduler was told of it; ``user``: the run that uses it, empty when none does any more."""

    lease: Lease
    facts: tuple[object, ...]
    held: HeldLease
    user: str
    #: the GPU time before this is counted already (unix seconds)
    since_s: float


class Inventory:
    """Nodes, leases and waiting runs, as the scheduler knows them. ``read_queues`` gives the same until it changes.

    ``lacking``: nodes that have to build what a run needs before it may start there.
    """

    def __init__(
        self,
        find_run: Callable[[str], RunRecord | None],
        nodes: NodeTable,
        leases: LeaseTable,
        read_queues: Callable[[], QueuesFile],
        lacking: Callable[[RunRecord], Collection[str]],
    ) -> None:
        self._lacking = lacking
        self._find_run = find_run
        self._nodes = nodes
        self._leases = leases
        self._read_queues = read_queues
        self.run_times = LearnedRunTimes(1)
        self._file = read_queues()
        self._waiting: dict[str, RunRecord] = {}
        #: of them those that the scheduler was not told of yet, and those that it knows and that wait no longer
        self._fresh: dict[str, RunRecord] = {}
        self._gone: set[str] = set()
        #: those that the ledger says wait or run, until it is known which of them do
        self._remembered: set[str] = set()
        #: those that the scheduler failed at; what it knows may be half of something since
        self._faults: dict[str, Exception] = {}
        self._is_suspect = False
        self._known: dict[str, _Known] = {}
        #: lease → since when it is being given back (monotonic seconds)
        self._releasing: dict[str, float] = {}
        self._scheduled: tuple[Node, ...] = ()
        #: what nodes said of themselves when they were last looked at
        self._said: list[tuple[object, ...]] = []
        self._external: dict[str, int] = {}
        self._use = FadingUse(self._file.policy.usage_half_life_s, time.time())
        #: when the scheduler is told again of what was used of late (unix seconds)
        self._use_told_s = 0.0
        self.scheduler = Scheduler(self._empty(), self.run_times)

    # --- told

    def remember(self, past: Iterable[RunView], live: Iterable[RunRecord] = ()) -> None:
        """Learn from runs of the gateway's earlier lives. ``live``: those that wait or run, so that it is known who
        was overtaken.
        """
        found: list[RunView | RunRecord] = sorted([*past, *live], key=_submitted_at)
        for run in found:
            if isinstance(run, RunRecord):
                self._note_submission(run)
                self._remembered.add(run.run)
            else:
                self._note_past(run)

    def recovered(self) -> None:
        """All that goes on is in the tables: nothing is expected any more of what was remembered beside that."""
        gone = self._remembered - self._waiting.keys() - {lease.run for lease in self._leases.all()}
        for run in gone:
            self.run_times.ended(run, time.time())
        self._remembered.clear()

    def _note_past(self, run: RunView) -> None:
        task, began_s = _task(run.name, run.notebook, run.cell), run.granted_at or 0.0
        gone_s = run.gone_at or run.finished_at or began_s
        self.run_times.submitted(run.run, run.user, run.gpus, "", run.submitted_at, task)
        self.run_times.started(run.run, began_s)
        self.run_times.ended(run.run, gone_s)
        self._count_use(run.queue, run.user, run.gpus, began_s, gone_s)

    def add(self, record: RunRecord) -> None:
        """A run waits, or asks for something else than before."""
        self.remove(record.run)
        self._waiting[record.run] = self._fresh[record.run] = record

    def remove(self, run: str) -> None:
        """A run waits no longer."""
        if self._waiting.pop(run, None) is not None and self._fresh.pop(run, None) is None:
            self._gone.add(run)

    # --- asked

    def in_step(self, offered: Collection[str] = ()) -> Scheduler:
        """The scheduler, told of all that has changed. ``offered``: leases that are about to be given back."""
        if self._is_suspect or self._read_queues() is not self._file or self._have_nodes_changed():
            self._build_anew()
        self._tell_changes(offered)
        if self._is_suspect:
            self._build_anew()
            self._tell_changes(offered)
        if self._external != self._leases.external or self._have_nodes_spoken():
            self._look_at_nodes()
        if time.time() >= self._use_told_s:
            self._tell_use(time.time())
        return self.scheduler

    def distrust(self) -> None:
        """Something failed half-way: the next pass is made from the tables alone."""
        self._is_suspect = True

    def take_faults(self) -> list[tuple[str, Exception]]:
        """Waiting runs that the scheduler could not be told of, and why; each is named once."""
        found = list(self._faults.items())
        self._faults.clear()
        return found

    def _tell_changes(self, offered: Collection[str]) -> None:
        """A fault in one run or lease costs that one alone."""
        self._forget_promises()
        gone, self._gone = self._gone, set()
        for run in gone:
            with self.guarded(f"the scheduler could not be told of run {run}, which waits no longer"):
                self.scheduler.remove(run)
        self._compare_leases(offered)
        for run in gone:
            if run not in self._waiting and not self.run_times.has_started(run):
                self._end_unseen(run)
        fresh, self._fresh = self._fresh, {}
        for run, record in fresh.items():
            try:
                self._submit(record)
            except Exception as fault:
                log.exception("run %s cannot be scheduled: it fails, and the others go on", run)
                self._is_suspect, self._faults[run] = True, fault
                del self._waiting[run]
                self.run_times.ended(run, time.time())

    def _end_unseen(self, run: str) -> None:
        """A run waits no longer, and has no lease: it has begun and ended since the last look, or neither."""
        record = self._find_run(run)
        view = None if record is None else record.view
        if view is not None and view.granted_at is not None and view.gone_at is not None:
            self.run_times.started(run, view.granted_at)
            self.run_times.ended(run, view.gone_at)
            self._count_use(self._queue(view.queue, view.user), view.user, view.gpus, view.granted_at, view.gone_at)
        else:
            self.run_times.ended(run, time.time())

    def _forget_promises(self) -> None:
        """Nothing is kept for runs that are over."""
        for run in list(self.scheduler.promised):
            record = self._find_run(run)
            if record is None or record.state.is_terminal:
                self.scheduler.unpromise(run)

    async def find_fault(self, now_s: float, paused: Collection[str]) -> tuple[str, Exception] | None:
        """The waiting run with which a decision fails that succeeds without it, and how; None: it is not one's fault.

        Others are served in between: each try makes a scheduler anew.
        """
        waiting = list(self._waiting.values())
        fault, sound, unsound = self._fault_with(waiting, now_s, paused), 0, len(waiting)
        if fault is None or self._fault_with([], now_s, paused) is not None:
            return None
        while unsound - sound > 1:
            await asyncio.sleep(0)
            middle = (sound + unsound) // 2
            found = self._fault_with(waiting[:middle], now_s, paused)
            if found is None:
                sound = middle
            else:
                fault, unsound = found, middle
        return waiting[unsound - 1].run, fault

    def _fault_with(self, waiting: Collection[RunRecord], now_s: float, paused: Collection[str]) -> Exception | None:
        try:
            scheduler = Scheduler(self._empty(), self.run_times)
            for known in self._known.values():
                scheduler.hold(known.held)
            for record in waiting:
                self._note_submission(record)
                scheduler.submit(self._as_run(record), _asker(record))
            scheduler.decide(now_s, paused)
        except Exception as fault:  # this is what is looked for
            log.exception("a decision about the first %d runs fails", len(waiting))
            return fault
        return None

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Log a fault of ours as ``what``; all is told to a new scheduler then, and the others go on."""
        try:
            yield
        except Exception:
            log.exception(what)
            self.distrust()

    def snapshot(self) -> ClusterSnapshot:
        """All that the scheduler knows: nodes, what others use there, runs that wait or hold a lease, use of late."""
        state, by_user = self.in_step().state, self._use.by_user(time.time())
        nodes = state.nodes
        return replace(
            self._empty(),
            runs=tuple(job.run for job in state.jobs.values()),
            queue_usage=by_queue(by_user, state.tree.paths),
            user_usage=by_user,
            outside={name: (gpus, nodes.away.get(name, "")) for name, (gpus, _) in nodes.outside.items()},
            aside=dict(nodes.aside),
        )

    # --- nodes

    def _have_nodes_changed(self) -> bool:
        return self._have_nodes_spoken() and self._nodes.scheduled() != self._scheduled

    def _have_nodes_spoken(self) -> bool:
        return self._said != [_said_of(node) for node in self._nodes.alive()]

    def _look_at_nodes(self) -> None:
        """Take out what others use, and nodes that do not answer just now."""
        alive = self._nodes.alive()
        self._said = [_said_of(node) for node in alive]
        self._external = dict(self._leases.external)
        for node in alive:
            others = self._external.get(node.node, 0)
            self.scheduler.state.nodes.set_outside(node.node, others * GPU, away_reason(node), node.aside)

    def _build_anew(self) -> None:
        """Nodes or queues are others: all is told to a new scheduler. Where none can be made, the old one stays."""
        file, scheduled = self._read_queues(), self._nodes.scheduled()
        use = self._use.with_half_life(file.policy.usage_half_life_s, time.time())
        promised, moving = dict(self.scheduler.promised), self.scheduler.moving
        self.scheduler = Scheduler(_without_runs(file, scheduled), self.run_times)
        self._file, self._scheduled, self._use, self._use_told_s = file, scheduled, use, 0.0
        self.run_times.resize(sum(node.gpus for node in self._nodes.alive()))
        self._fresh = dict(self._waiting)
        for name, known in self._known.items():
            run = known.held.run
            held = replace(known.held, run=replace(run, queue=self._queue(run.queue, run.user)))
            self._known[name] = replace(known, held=held)
            self.scheduler.hold(held)
        for name, ranks in promised.items():
            self.scheduler.promise(name, ranks, moving.get(name))
        self._look_at_nodes()
        self._is_suspect = False

    def _empty(self) -> ClusterSnapshot:
        return _without_runs(self._file, self._scheduled)

    # --- leases

    def _compare_leases(self, offered: Collection[str]) -> None:
        leases = {lease.name: lease for lease in self._leases.all()}
        for name in [name for name, known in self._known.items() if leases.get(name) is not known.lease]:
            with self.guarded(f"the scheduler could not be told of the end of lease {name}"):
                self._releasing.pop(name, None)
                self._learn(self._known.pop(name), has_ended=True)
            with self.guarded(f"the scheduler could not be told of lease {name}, which is gone"):
                self.scheduler.drop(name)
        for name, lease in leases.items():
            record = self._find_run(lease.run)
            preempts = record is not None and isinstance(record.stage, Preempting)
            is_coming = lease.state is LeaseState.RELEASING or name in offered or preempts
            facts = (is_coming, preempts, lease.kept, self._is_stuck(lease), _gpu_of(lease), *_risks_of(record))
            known = self._known.get(name)
            if known is None or known.facts != facts:
                self._hold_or_count(lease, known, facts, is_coming=is_coming)

    def _is_stuck(self, lease: Lease) -> bool:
        """Tell if Ray has not reported its GPUs free for so long that nobody knows if it will."""
        if lease.state is not LeaseState.RELEASING:
            self._releasing.pop(lease.name, None)
            return False
        return time.monotonic() - self._releasing.setdefault(lease.name, time.monotonic()) >= FREE_S

    def _hold_or_count(
        self, lease: Lease, before: _Known | None, facts: tuple[object, ...], *, is_coming: bool
    ) -> None:
        """Its GPUs are taken, even where nothing else can be made of a lease."""
        try:
            self._hold(lease, before, facts, is_coming=is_coming)
        except Exception:
            log.exception(
                "lease %s cannot be scheduled: its GPUs count as somebody's, and the others go on", lease.name
            )
            self._is_suspect = True
            held = HeldLease(lease.name, self._somebody(lease), lease.slots, is_coming=is_coming)
            self._known[lease.name] = _Known(lease, facts, held, "", time.time())

    def _hold(self, lease: Lease, before: _Known | None, facts: tuple[object, ...], *, is_coming: bool) -> None:
        record, kept = self._find_run(lease.run), lease.kept
        has_ended = is_coming and not (record is not None and isinstance(record.stage, Preempting))
        user = "" if has_ended or kept is not None else lease.run
        if before is not None:
            self._learn(before, has_ended=not user)
            user = user and before.user  # a run that has ended has ended, should its lease not change hands after all
        run, now_s = self._holder(lease, record), time.time()
        if user and record is not None:
            self._note_start(record, run)
        terms = None if kept is None or is_coming else KeepTerms(kept.session, kept.until_s, kept.auto)
        held = HeldLease(
            lease.name,
            run,
            lease.slots,
            run.started_at,
            is_coming,
            terms,
            wanted_ranks=_wanted_ranks(record),
            is_stuck=self._is_stuck(lease),
            gpu=_gpu_of(lease),
        )
        self.scheduler.hold(held)
        since_s = now_s if before is not None else run.started_at or now_s
        self._known[lease.name] = _Known(lease, facts, held, user, since_s)

    def _holder(self, lease: Lease, record: RunRecord | None) -> Run:
        """The run that holds a lease, or that it is kept after."""
        kept, run = lease.kept, self._somebody(lease)
        if kept is not None:
            queue = self._queue(kept.queue, kept.user)
            lasts_s = kept.until_s - kept.since_s
            return replace(run, queue=queue, user=kept.user, started_at=kept.since_s, expected_s=lasts_s)
        if record is None:
            return run
        view = record.view
        if record.request.ask.min_gpus is not None or view.restartable:
            run = self._as_asked(lease, record) or run
        return replace(
            run,
            queue=self._queue(view.queue, view.user),
            user=view.user,
            limit_s=record.request.timeout_s,
            priority=view.priority_value,
            started_at=view.granted_at or run.started_at,
            restartable=record.may_be_taken,
            saved_at=max(view.saved_at or 0.0, view.running_at or 0.0) or None,
        )

    def _as_asked(self, lease: Lease, record: RunRecord) -> Run | None:
        """The holder with all that it asked for, as it may move or grow; None where its lease has another shape."""
        self._note_submission(record)
        run = self._as_run(record)
        ranks = (Rank(),) * sum(parts_on(run, slot) for slot in lease.slots)
        run = replace(run, ranks=ranks, min_ranks=min(run.min_ranks, len(ranks)))
        return run if run.gpus == sum(in_thousandths(slot.gpus) for slot in lease.slots) else None

    def _somebody(self, lease: Lease) -> Run:
        """The holder of a lease of which nothing else is known."""
        gpus = [in_thousandths(slot.gpus) for slot in lease.slots]
        each = math.gcd(*gpus)
        count = sum(gpus) // each if each else len(gpus)
        return Run(
            run=lease.run,
            queue=self._queue("", ""),
            ranks=(Rank(),) * count,
            gpus_per_rank=each,
            min_ranks=count,
            cpus_per_rank=lease.slots[0].cpus,
            started_at=time.time(),
        )

    # --- runs

    def _submit(self, record: RunRecord) -> None:
        self._note_submission(record)
        if self.run_times.has_started(record.run):
            self.run_times.put_back(record.run)
        self.scheduler.submit(self._as_run(record), _asker(record))

    def _as_run(self, record: RunRecord) -> Run:
        view, request = record.view, record.request
        run = to_run(
            record.run,
            request.ask,
            queue=self._queue(view.queue, view.user),
            user=view.user,
            priority=view.priority_value,
            submitted_at=view.submitted_at,
            campaign=self.run_times.campaign_of(record.run),
            limit_s=request.timeout_s,
            restartable=view.restartable and not view.stays,
        )
        if request.restartable or request.retries or record.attempt:
            run = replace(run, needs=replace(run.needs, attempts=True))
        if unready := self._lacking(record):
            run = replace(run, unready=tuple(sorted(unready)))
        if view.attempts and (blamed := blamed_hosts(view)):
            avoid = sorted(node.node for node in self._nodes.alive() if node.host in blamed)
            run = replace(run, avoid=tuple(avoid))
        return run

    def _queue(self, name: str, user: str) -> str:
        """The queue of a run, or where its user's runs go should the queues file not have it any more."""
        return self._file.settle(name, user)

    # --- run times

    def _note_submission(self, record: RunRecord) -> None:
        view = record.view
        if not self.run_times.knows(record.run):
            task = _task(view.name, view.notebook, view.cell)
            self.run_times.submitted(record.run, view.user, view.gpus, "", view.submitted_at, task)

    def _note_start(self, record: RunRecord, run: Run) -> None:
        self._note_submission(record)
        self.run_times.started(record.run, run.started_at or time.time())

    def _learn(self, known: _Known, *, has_ended: bool) -> None:
        """A run uses its lease no longer: how long it did is what others like it are expected to take.

        Of one that goes on later nothing is learned.
        """
        now_s, held = time.time(), known.held
        record = self._find_run(known.user) if known.user else None
        goes_on = record is not None and record.view.notice is not None
        if has_ended and known.user and known.user not in self._waiting and not goes_on:
            self.run_times.ended(known.user, now_s)
        if known.user or not held.is_coming:
            self._count_use(held.run.queue, held.run.user, held.gpus, known.since_s, now_s)

    def _count_use(self, queue: str, user: str, gpus: float, began_s: float, ended_s: float) -> None:
        self._use.add(queue, user, max(0.0, ended_s - began_s) * gpus * GPU, ended_s)

    def _tell_use(self, now_s: float) -> None:
        state, by_user = self.scheduler.state, self._use.by_user(now_s)
        state.note_usage(by_queue(by_user, state.tree.paths), by_user)
        self._use_told_s = now_s + _USE_TOLD_S


def _submitted_at(run: RunView | RunRecord) -> float:
    return run.view.submitted_at if isinstance(run, RunRecord) else run.submitted_at


def _without_runs(file: QueuesFile, nodes: tuple[Node, ...]) -> ClusterSnapshot:
    return ClusterSnapshot(file.shared(nodes), tuple(file.tree.queues.values()), (), file.policy)


def _gpu_of(lease: Lease) -> str:
    """The GPU that a part of one is on, once Ray has told."""
    is_part = 0 < lease.slots[0].gpus < 1
    return lease.gpu_ids[0][0] if is_part and lease.gpu_ids and lease.gpu_ids[0] else ""


def _risks_of(record: RunRecord | None) -> tuple[object, ...]:
    """Facts about a run that decide if it may be preempted, and what that would cost."""
    if record is None or not record.view.restartable:
        return ()
    return record.may_be_taken, record.view.saved_at, _wanted_ranks(record)


def _wanted_ranks(record: RunRecord | None) -> int:
    """Ranks that an elastic run would have at most; 0: it stays as it is. Growing costs it a preemption, so it does not
    as soon as it has begun.
    """
    if record is None or record.request.ask.min_gpus is None or not record.may_be_taken:
        return 0
    has_settled = time.time() - (record.view.running_at or math.inf) >= _GROWS_AFTER_S
    return record.request.ask.ranks if has_settled else record.view.ranks


def _asker(record: RunRecord) -> Asker:
    view = record.view  # --wait limits the first queueing only
    return Asker(view.session, view.detached, None if view.attempts else record.request.wait_s)


def _task(name: str, notebook: str, cell: str) -> str:
    """The name of what is run: a function's, or the place of a cell."""
    return name or (f"{notebook}#{cell}" if cell else "")


def _said_of(node: ClusterNode) -> tuple[object, ...]:
    said = node.node, node.info, node.reachable, node.is_lost, node.drained, node.taking, node.aside
    return *said, node.is_asleep, node.is_leaving, left_s(node)
