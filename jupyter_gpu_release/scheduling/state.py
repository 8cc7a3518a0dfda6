"""The working state of a pass: who has what now, changed step by step, and undone where a try led nowhere.

It is also the incremental index: whoever keeps it tells it what was submitted, started and ended, and asks it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from .decisions import ForAll
from .nodes import Group, Nodes
from .queues.fair_share import fair_shares
from .queues.gpu_types import OTHERS, named_types, tree_of, type_among
from .queues.tree import UNLIMITED, Policy, Queue, QueueTree
from .workload import GPU, Node, RankState, Run

_HOLDS = frozenset({RankState.RUNNING, RankState.GRANTED, RankState.PROMISED})
#: kinds of changes
_PLACED, _EVICTED, _SPARED = "placed", "evicted", "spared"
#: work that a run of unknown length counts for: an hour of one GPU
_UNKNOWN_WORK = 3600.0


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The cluster at one moment."""

    nodes: tuple[Node, ...] = ()
    queues: tuple[Queue, ...] = ()
    runs: tuple[Run, ...] = ()
    policy: Policy = field(default_factory=Policy)
    #: GPU-seconds of late in thousandths, decayed, by queue and by (queue, user)
    queue_usage: Mapping[str, float] = field(default_factory=dict)
    user_usage: Mapping[tuple[str, str], float] = field(default_factory=dict)
    #: node → what other programs use there (thousandths), and why it does not answer just now, if so
    outside: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    #: node → its GPUs that get nothing new, and why
    aside: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class RunTimes(ABC):
    """Expected run times, from those who keep an index. Asked by a pass, on its thread; must not block."""

    @abstractmethod
    def rank(self, run: Run, now_s: float) -> tuple[float, ...]:
        """Place among the runs of a queue by waiting time and expected work; lower goes first."""

    @abstractmethod
    def expected_s(self, run: Run, now_s: float) -> float | None:
        """Time that a waiting run is expected to take; None: nobody knows."""

    @abstractmethod
    def remaining_s(self, run: Run, started_at: float, now_s: float) -> float | None:
        """Time until a running run is expected to have ended; None: nobody knows."""


class StatedRunTimes(RunTimes):
    """Run times that the runs carry themselves."""

    def rank(self, run: Run, now_s: float) -> tuple[float, ...]:
        """Waiting time over expected work."""
        waited = min(0.0, run.submitted_at - now_s)
        if run.expected_s is None:
            return (waited / _UNKNOWN_WORK,)
        return (waited * GPU / (max(run.gpus_per_rank * len(run.ranks), GPU) * max(run.expected_s, 1.0)),)

    def expected_s(self, run: Run, now_s: float) -> float | None:
        """Learned time, else the limit."""
        return run.limit_s if run.expected_s is None else run.expected_s

    def remaining_s(self, run: Run, started_at: float, now_s: float) -> float | None:
        """Expected time; of a run that has lasted longer as much again."""
        expected_s, elapsed_s = self.expected_s(run, now_s), now_s - started_at
        if expected_s is None:
            return None
        return expected_s - elapsed_s if elapsed_s < expected_s else elapsed_s


class Job:
    """A run and where its ranks are in the course of a pass."""

    __slots__ = ("held", "kind", "ordinal", "places", "queued", "run", "started_at", "states")

    def __init__(self, run: Run, ordinal: int, kind: Kind) -> None:
        self.run = run
        self.ordinal = ordinal
        self.kind = kind
        self.started_at = run.started_at
        self.states = [rank.state for rank in run.ranks]
        self.places = [rank.node for rank in run.ranks]
        #: ranks that have a place, or were given one in this pass
        self.held = sum(state in _HOLDS for state in self.states)
        #: ranks without a place
        self.queued = self.states.count(RankState.QUEUED)

    @property
    def surplus(self) -> int:
        """Ranks above the least that the run needs."""
        return self.held - self.run.min_ranks

    @property
    def step_size(self) -> int:
        """How many ranks have to start together next: all up to ``min_ranks``, above that one; 0: none can."""
        missing = max(1, self.run.min_ranks - self.held)
        return missing if self.queued >= missing else 0

    def step(self) -> list[int]:
        """The ranks that have to start together next."""
        size = self.step_size
        if not self.held and self.queued == len(self.states):
            return list(range(size))
        return [index for index, state in enumerate(self.states) if state is RankState.QUEUED][:size]


class Kind:
    """Waiting runs that are alike: same queue, user, priority, ask and expected work. Only the oldest competes."""

    __slots__ = ("ask", "jobs", "key")

    def __init__(self, key: tuple[object, ...], ask: tuple[object, ...]) -> None:
        self.key = key
        self.ask = ask
        #: by age
        self.jobs: list[tuple[float, int, Job]] = []


class Account:
    """GPUs of a queue, in thousandths."""

    __slots__ = ("allocated", "demand", "fixed", "queue", "usage")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.allocated = 0
        #: of it, held by runs that cannot be taken back
        self.fixed = 0
        #: allocated and waited for
        self.demand = 0
        #: GPUs on average of late
        self.usage = 0.0

    @property
    def guaranteed(self) -> float:
        """The guarantee, as a number that can be compared."""
        return float("inf") if self.queue.guaranteed == UNLIMITED else self.queue.guaranteed


class TypeAccounts:
    """GPUs of each queue of one type, the number of all GPUs of that type, and the shares of this pass."""

    __slots__ = ("accounts", "shares", "total", "tree")

    def __init__(self, tree: QueueTree, total: int) -> None:
        self.tree = tree
        self.total = total
        self.accounts = {name: Account(queue) for name, queue in tree.queues.items()}
        self.shares: dict[str, float] = {}


class State:
    """Nodes, queues and runs of one pass; every change can be undone."""

    def __init__(self, snapshot: ClusterSnapshot, run_times: RunTimes | None = None) -> None:
        self.policy = snapshot.policy
        self.run_times = run_times or StatedRunTimes()
        self.tree = QueueTree(snapshot.queues)
        self.nodes = Nodes(snapshot.nodes)
        self.accounts = {name: Account(queue) for name, queue in self.tree.queues.items()}
        self._named_types = named_types(self.tree.queues.values())
        #: type of GPU → its accounts; empty where no queue names a type
        self.by_type = self._type_accounts() if self._named_types else {}
        self._types: dict[int, str] = {}
        self.has_priorities = any(queue.priority for queue in self.tree.queues.values())
        self.user_usage: dict[tuple[str, str], float] = {}
        self.note_usage(snapshot.queue_usage, snapshot.user_usage)
        #: (queue, user) → what the user holds in the queue and in those below it
        self.user_held: dict[tuple[str, str], int] = {}
        self.jobs: dict[str, Job] = {}
        self.kinds: dict[tuple[object, ...], Kind] = {}
        #: ask → those of the kinds that ask for it
        self.asks: dict[tuple[object, ...], dict[tuple[object, ...], Kind]] = {}
        #: queue → (priority, user) → those of the kinds that wait
        self.groups: dict[str, dict[tuple[int, str], dict[tuple[object, ...], Kind]]] = {}
        #: runs that have some of their ranks and wait for others
        self.partial: dict[str, Job] = {}
        #: restartable runs that run
        self.takeable: dict[str, Job] = {}
        self.running: dict[str, Job] = {}
        #: run → rank → node that it was promised in an earlier pass
        self.promises: dict[str, dict[int, str]] = {}
        #: of this pass: the first that are blocked, and the groups of nodes that they wait for
        self.heads: list[tuple[Job, list[Group]]] = []
        #: and with them the first that only a rule stops, by run, in their order
        self.blocked: dict[str, tuple[Job, list[Group]]] = {}
        #: kernels keep GPUs, which some users' runs may take back and others' not: each user's first is of interest
        self.has_kept = False
        #: elastic runs that wait for all of their ranks, though there is room for some
        self.for_all: dict[str, ForAll] = {}
        self._ordinal = 0
        self._journal: list[tuple[str, Job, int, RankState, str]] = []
        for run in snapshot.runs:
            self.submit(run)
        for node in {**snapshot.outside, **snapshot.aside}:
            self.nodes.set_outside(node, *snapshot.outside.get(node, (0, "")), snapshot.aside.get(node))

    def _type_accounts(self) -> dict[str, TypeAccounts]:
        totals = dict.fromkeys((*self._named_types, OTHERS), 0)
        for group in self.nodes.groups:
            totals[type_among(group.sample.gpu_type, self._named_types)] += group.sample.gpus * len(group.names)
        return {kind: TypeAccounts(tree_of(self.tree, kind), total) for kind, total in totals.items()}

    # --- the index: told by whoever keeps it

    def submit(self, run: Run) -> None:
        """Enter a run, with the ranks that it has running."""
        ask: tuple[object, ...] = (
            run.gpus_per_rank,
            len(run.ranks),
            run.min_ranks,
            run.nodes,
            run.needs,
            run.cpus_per_rank,
            run.avoid,
            run.unready,
            self.nodes.lasts_s(run),
        )
        if self.by_type:  # limits by type make other nodes do for other queues
            ask = (*ask, run.queue)
        key = (run.queue, run.user, run.priority, run.restartable, run.campaign, run.expected_s, run.limit_s, *ask)
        kind = self.kinds.get(key) or Kind(key, ask)
        job = self.jobs[run.run] = Job(run, self._ordinal, kind)
        self._ordinal += 1
        self._demand(run, 1)
        for index, rank in enumerate(run.ranks):
            if rank.state in _HOLDS:
                self._hold(job, index, 1, rank.gpu)
            elif rank.state is RankState.YIELDING:
                self.nodes.hold(run, index, rank.node, 1, rank.gpu)
                self.nodes.give_way(run, index, rank.node, 1)
        queued = {index: rank for index, rank in enumerate(run.ranks) if rank.state is RankState.QUEUED}
        self.promise(run.run, [(index, rank.node) for index, rank in queued.items() if rank.node])
        self._enter(job, run.started_at)

    def _enter(self, job: Job, started_at: float | None) -> None:
        if job.held:
            if job.queued:
                self.partial[job.run.run] = job
            if job.run.restartable:
                self.takeable[job.run.run] = job
            self.running[job.run.run] = job
            job.started_at = started_at
        elif job.queued:
            insort(job.kind.jobs, (job.run.submitted_at, job.ordinal, job))
            self.kinds[job.kind.key] = job.kind
            self.asks.setdefault(job.kind.ask, {})[job.kind.key] = job.kind
            of_queue = self.groups.setdefault(job.run.queue, {})
            of_queue.setdefault((job.run.priority, job.run.user), {})[job.kind.key] = job.kind

    def note_usage(self, by_queue: Mapping[str, float], by_user: Mapping[tuple[str, str], float]) -> None:
        """Take in what was used of late, as in a snapshot."""
        half_life = self.policy.usage_half_life_s
        for name, account in self.accounts.items():
            account.usage = by_queue.get(name, 0.0) / half_life
        self.user_usage = {key: usage / half_life for key, usage in by_user.items()}

    def start(self, run: str, ranks: Iterable[tuple[int, str]], now_s: float) -> None:
        """Let ranks (index, node) run."""
        job = self.jobs[run]
        self.promises.pop(run, None)
        first = not job.held
        if first:
            self._leave(job)
        for rank, node in ranks:
            self.place(job, rank, node, RankState.RUNNING)
        self._journal.clear()
        if first:
            self._enter(job, now_s)
        elif not job.queued:
            self.partial.pop(run, None)

    def promise(self, run: str, ranks: Iterable[tuple[int, str]]) -> None:
        """Keep places (index, node) for a run that others are preempted for; it starts when they have gone."""
        promised = dict(ranks)
        if promised:
            self.promises[run] = promised

    def end(self, run: str) -> None:
        """Take out a run that has ended, or that waits no longer."""
        job = self.jobs.pop(run)
        self.promises.pop(run, None)
        self._leave(job)
        self._demand(job.run, -1)
        for rank, (state, node) in enumerate(zip(job.states, job.places, strict=True)):
            if state in _HOLDS:
                self._hold(job, rank, -1)
            elif state is RankState.YIELDING:
                self.nodes.give_way(job.run, rank, node, -1)
                self.nodes.hold(job.run, rank, node, -1)

    def _demand(self, run: Run, sign: int) -> None:
        """Count what a run wants: of each type too, if it asks for that one, or for none."""
        for name in self.tree.paths[run.queue]:
            self.accounts[name].demand += sign * run.gpus
        if self.by_type:
            asked = type_among(run.needs.gpu_type, self._named_types) if run.needs.gpu_type else None
            for each in [each for kind, each in self.by_type.items() if asked in (None, kind)]:
                for name in self.tree.paths[run.queue]:
                    each.accounts[name].demand += sign * run.gpus

    def _leave(self, job: Job) -> None:
        entry = (job.run.submitted_at, job.ordinal)
        at = bisect_left(job.kind.jobs, entry, key=lambda entry: entry[:2])
        if at < len(job.kind.jobs) and job.kind.jobs[at][2] is job:
            del job.kind.jobs[at]
            if not job.kind.jobs:
                del self.kinds[job.kind.key]
                del self.asks[job.kind.ask][job.kind.key]
                if not self.asks[job.kind.ask]:
                    del self.asks[job.kind.ask]
                group = self.groups[job.run.queue][job.run.priority, job.run.user]
                del group[job.kind.key]
                if not group:
                    del self.groups[job.run.queue][job.run.priority, job.run.user]
        self.partial.pop(job.run.run, None)
        self.takeable.pop(job.run.run, None)
        self.running.pop(job.run.run, None)

    # --- what a pass asks

    def shares(self) -> dict[str, float]:
        """The share that each queue is measured by: its fair share, at least its guarantee, at most its maximum."""
        for each in self.by_type.values():
            each.shares = _shares(each.tree, each.accounts, each.total)
        return _shares(self.tree, self.accounts, self.nodes.total)

    def type_of(self, group: Group) -> str:
        """The type of a group's GPUs, of those that queues name."""
        if group.number not in self._types:
            self._types[group.number] = type_among(group.sample.gpu_type, self._named_types)
        return self._types[group.number]

    def account(self, queue: str, kind: str | None = None) -> Account:
        """GPUs that a queue has and is due: of one type where it is guaranteed GPUs by type, else of all."""
        if kind is not None and self.tree.queues[queue].guaranteed_of:
            return self.by_type[kind].accounts[queue]
        return self.accounts[queue]

    def share(self, shares: Mapping[str, float], queue: str, kind: str | None = None) -> float:
        """The share that goes with :meth:`account`; ``shares``: those of all types together."""
        if kind is not None and self.tree.queues[queue].guaranteed_of:
            return self.by_type[kind].shares[queue]
        return shares[queue]

    def ends(self, now_s: float) -> list[tuple[float, int, Job]]:
        """Expected end, ordinal and run of what runs or starts in this pass, where that is known; soonest first."""
        found = []
        for job in {entry[1].run.run: entry[1] for entry in self._journal if entry[0] is _PLACED}.values():
            expected_s = self.run_times.expected_s(job.run, now_s)
            if expected_s is not None and job.run.run not in self.running:
                found.append((now_s + expected_s, job.ordinal, job))
        for job in self.running.values():
            if job.started_at is not None:
                remaining_s = self.run_times.remaining_s(job.run, job.started_at, now_s)
                if remaining_s is not None:
                    found.append((now_s + max(0.0, remaining_s), job.ordinal, job))
        return sorted(found)

    def users_share(self, queue: str, user: str) -> float:
        """GPUs of a user in a queue, now and on average of late."""
        return self.user_held.get((queue, user), 0) + self.user_usage.get((queue, user), 0.0)

    def growing(self) -> list[Job]:
        """Runs that have some of their ranks and wait for others, also those started in this pass."""
        found = {**self.partial, **{job.run.run: job for _, job, *_ in self._journal}}
        return [job for job in found.values() if job.held and job.step_size]

    def samples(self) -> Iterator[Job]:
        """For each ask a run that has not begun, and all that grow."""
        for kinds in self.asks.values():
            jobs = (job for kind in kinds.values() for _, _, job in kind.jobs if not job.held)
            yield from islice(jobs, 1)
        yield from self.growing()

    def waiting(self) -> Iterator[Job]:
        """Runs that have not all that they need."""
        for kind in self.kinds.values():
            yield from (job for _, _, job in kind.jobs if not job.held and job.queued)
        yield from (job for job in self.partial.values() if job.surplus < 0 and job.queued)

    # --- what a pass changes

    def place(self, job: Job, rank: int, node: str, state: RankState) -> None:
        """Give a rank GPUs on a node."""
        self._journal.append((_PLACED, job, rank, job.states[rank], job.places[rank]))
        job.queued -= job.states[rank] is RankState.QUEUED
        job.states[rank], job.places[rank] = state, node
        job.held += 1
        self._hold(job, rank, 1)

    def evict(self, job: Job, rank: int) -> None:
        """Let a running rank be preempted: its GPUs are coming."""
        self._journal.append((_EVICTED, job, rank, job.states[rank], job.places[rank]))
        self._yield(job, rank, 1)

    def spare(self, job: Job, rank: int) -> None:
        """Let a rank that was to be preempted stay where it is."""
        self._journal.append((_SPARED, job, rank, job.states[rank], job.places[rank]))
        self._yield(job, rank, -1)

    def _yield(self, job: Job, rank: int, sign: int) -> None:
        node = job.places[rank]
        self._count(job, node, -sign)
        job.states[rank] = RankState.YIELDING if sign > 0 else RankState.RUNNING
        job.held -= sign
        self.nodes.give_way(job.run, rank, node, sign)

    def mark(self) -> int:
        """A place to come back to with :meth:`undo`."""
        return len(self._journal)

    def undo(self, mark: int = 0) -> None:
        """Undo every change since ``mark``."""
        while len(self._journal) > mark:
            kind, job, rank, state, node = self._journal.pop()
            if kind is _PLACED:
                self._hold(job, rank, -1)
                job.held -= 1
                job.queued += state is RankState.QUEUED
            else:
                self._yield(job, rank, -1 if kind is _EVICTED else 1)
            job.states[rank], job.places[rank] = state, node

    def _hold(self, job: Job, rank: int, sign: int, gpu: str = "") -> None:
        self.nodes.hold(job.run, rank, job.places[rank], sign, gpu)
        self._count(job, job.places[rank], sign)

    def _count(self, job: Job, node: str, sign: int) -> None:
        self.count(job.run, node, sign * job.run.gpus_per_rank)

    def count(self, run: Run, node: str, gpus: int) -> None:
        """Count GPUs (thousandths) on a node as held by a run's user and queue; a negative number takes that back."""
        for name in self.tree.paths[run.queue]:
            _add(self.accounts[name], run, gpus)
            self.user_held[name, run.user] = self.user_held.get((name, run.user), 0) + gpus
        if self.by_type:
            of_type = self.by_type[self.type_of(self.nodes.group(node))].accounts
            for name in self.tree.paths[run.queue]:
                _add(of_type[name], run, gpus)


def _add(account: Account, run: Run, gpus: int) -> None:
    account.allocated += gpus
    if not run.restartable:
        account.fixed += gpus


def _shares(tree: QueueTree, accounts: Mapping[str, Account], total: int) -> dict[str, float]:
    fair = fair_shares(tree, {name: account.demand for name, account in accounts.items()}, total)
    return {name: _measure(account, fair[name]) for name, account in accounts.items()}


def _measure(account: Account, fair: int) -> float:
    share = max(account.guaranteed, fair)
    return share if account.queue.max is None else min(share, account.queue.max)
