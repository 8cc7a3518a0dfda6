"""The working state of a pass: who has what now, changed step by step, and undone where a try led nowhere.

It is also the incremental index: whoever keeps it tells it what was submitted, started and ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .fair_share import fair_shares
from .queues import UNLIMITED, Policy, Queue, QueueTree
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


class Job:
    """A run and where its ranks are in the course of a pass."""

    __slots__ = ("held", "ordinal", "places", "run", "states")

    def __init__(self, run: Run, ordinal: int) -> None:
        self.run = run
        self.ordinal = ordinal
        self.states = [rank.state for rank in run.ranks]
        self.places = [rank.node for rank in run.ranks]
        #: ranks that have a place, or were given one in this pass
        self.held = sum(state in _HOLDS for state in self.states)

    @property
    def is_waiting(self) -> bool:
        """Some rank has no place."""
        return RankState.QUEUED in self.states

    @property
    def surplus(self) -> int:
        """Ranks above the least that the run needs."""
        return self.held - self.run.min_ranks

    def step(self) -> list[int]:
        """The ranks that have to start together next: all up to ``min_ranks``, above that one."""
        queued = [index for index, state in enumerate(self.states) if state is RankState.QUEUED]
        missing = max(1, self.run.min_ranks - self.held)
        return queued[:missing] if len(queued) >= missing else []


class Account:
    """What a queue has, in thousandths of a GPU."""

    __slots__ = ("allocated", "demand", "fixed", "queue", "usage")

    def __init__(self, queue: Queue, usage: float) -> None:
        self.queue = queue
        self.allocated = 0
        #: of it, held by runs that cannot be taken back
        self.fixed = 0
        #: allocated and waited for
        self.demand = 0
        #: GPUs on average of late
        self.usage = usage

    @property
    def guaranteed(self) -> float:
        """The guarantee, as a number that can be compared."""
        return float("inf") if self.queue.guaranteed == UNLIMITED else self.queue.guaranteed


class State:
    """Nodes, queues and runs of one pass; every change can be undone."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.policy = snapshot.policy
        self.tree = QueueTree(snapshot.queues)
        self.nodes = {node.name: node for node in snapshot.nodes}
        self.free = {node.name: node.gpus for node in snapshot.nodes}
        self.free_cpus = {node.name: node.cpus for node in snapshot.nodes}
        #: GPUs that those who yield give back
        self.coming = dict.fromkeys(self.nodes, 0)
        half_life = self.policy.usage_half_life_s
        self.accounts = {
            name: Account(queue, snapshot.queue_usage.get(name, 0.0) / half_life)
            for name, queue in self.tree.queues.items()
        }
        self.user_usage = {key: usage / half_life for key, usage in snapshot.user_usage.items()}
        self.user_held: dict[tuple[str, str], int] = {}
        self.jobs: dict[str, Job] = {}
        self.has_priorities = any(queue.priority for queue in self.tree.queues.values())
        self.total = sum(node.gpus for node in snapshot.nodes)
        self._journal: list[tuple[str, Job, int, RankState, str]] = []
        for run in snapshot.runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """Enter a run, with the ranks that it has running."""
        job = self.jobs[run.run] = Job(run, len(self.jobs))
        self._demand(run, run.gpus)
        for state, node in zip(job.states, job.places, strict=True):
            if state in _HOLDS:
                self._hold(job, node, state, 1)
            elif state is RankState.YIELDING:
                self.free[node] -= run.gpus_per_rank
                self.coming[node] += run.gpus_per_rank

    def _demand(self, run: Run, gpus: int) -> None:
        for name in self.tree.paths[run.queue]:
            self.accounts[name].demand += gpus

    def shares(self) -> dict[str, float]:
        """The share that each queue is measured by: its fair share, at least its guarantee, at most its maximum."""
        fair = fair_shares(self.tree, {name: account.demand for name, account in self.accounts.items()}, self.total)
        return {name: _measure(account, fair[name]) for name, account in self.accounts.items()}

    def expected_work(self, run: Run) -> float:
        """GPU-seconds that the run is expected to need."""
        if run.expected_s is None:
            return _UNKNOWN_WORK
        return max(run.gpus, GPU) / GPU * max(run.expected_s, 1.0)

    def room(self, node: str, *, soon: bool) -> int:
        """Thousandths that are free on a node; ``soon``: once those who yield have gone."""
        return self.free[node] + self.coming[node] if soon else self.free[node]

    def users_share(self, queue: str, user: str) -> float:
        """What a user has in a queue, now and on average of late."""
        return self.user_held.get((queue, user), 0) + self.user_usage.get((queue, user), 0.0)

    def place(self, job: Job, rank: int, node: str, state: RankState) -> None:
        """Give a rank GPUs on a node."""
        self._journal.append((_PLACED, job, rank, job.states[rank], job.places[rank]))
        job.states[rank], job.places[rank] = state, node
        job.held += 1
        self._hold(job, node, state, 1)

    def evict(self, job: Job, rank: int) -> None:
        """Let a running rank step aside: its GPUs are coming."""
        self._journal.append((_EVICTED, job, rank, job.states[rank], job.places[rank]))
        self._yield(job, rank, 1)

    def spare(self, job: Job, rank: int) -> None:
        """Let a rank that was to step aside stay where it is."""
        self._journal.append((_SPARED, job, rank, job.states[rank], job.places[rank]))
        self._yield(job, rank, -1)

    def _yield(self, job: Job, rank: int, sign: int) -> None:
        node = job.places[rank]
        self._hold(job, node, RankState.RUNNING, -sign)
        job.states[rank] = RankState.YIELDING if sign > 0 else RankState.RUNNING
        job.held -= sign
        self.free[node] -= sign * job.run.gpus_per_rank
        self.coming[node] += sign * job.run.gpus_per_rank

    def mark(self) -> int:
        """A place to come back to with :meth:`undo`."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Undo every change since ``mark``."""
        while len(self._journal) > mark:
            kind, job, rank, state, node = self._journal.pop()
            if kind is _PLACED:
                self._hold(job, job.places[rank], job.states[rank], -1)
                job.held -= 1
            else:
                self._yield(job, rank, -1 if kind is _EVICTED else 1)
            job.states[rank], job.places[rank] = state, node

    def _hold(self, job: Job, node: str, state: RankState, sign: int) -> None:
        run = job.run
        self.free[node] -= sign * run.gpus_per_rank
        self.free_cpus[node] -= sign * run.cpus_per_rank
        gpus = sign * run.gpus_per_rank
        for name in self.tree.paths[run.queue]:
            account = self.accounts[name]
            account.allocated += gpus
            if not run.restartable:
                account.fixed += gpus
        key = (run.queue, run.user)
        self.user_held[key] = self.user_held.get(key, 0) + gpus

    def waiting(self) -> Iterable[Job]:
        """Runs with ranks that have no place."""
        return (job for job in self.jobs.values() if job.is_waiting)


def _measure(account: Account, fair: int) -> float:
    share = max(account.guaranteed, fair)
    return share if account.queue.max is None else min(share, account.queue.max)
