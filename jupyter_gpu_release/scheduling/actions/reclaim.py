"""Reclaim: a queue below its share takes from those above theirs, at each level of the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..decisions import Start, Yield
from ..plugins.queue_order import saturation
from ..state import Job, State
from .allocate import asks_as
from .standing import movable, next_ones
from .victims import Unit, best_unit, make_room


def reclaim(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start | Yield]:
    """Serve each waiting run once, in order."""
    if not movable(state, now_s):
        return
    contest = next_ones(state, shares, now_s, lambda job: is_below_share(state, shares, job))
    while (job := contest.pop()) is not None:
        decided: list[Start | Yield] = []
        if is_below_share(state, shares, job):
            search = Search(state, shares, job, now_s)
            decided = make_room(state, job, search.others, search.following, "reclaim", accept=search.keeps_order)
            yield from decided
        if decided:
            contest.again()
        else:
            contest.drop(_fails_like(job))


def is_below_share(state: State, shares: Mapping[str, float], job: Job) -> bool:
    """Tell if the run's queue stays within its share with the run."""
    queue = job.run.queue
    return state.accounts[queue].allocated + job.step_size * job.run.gpus_per_rank <= shares[queue]


def _fails_like(job: Job) -> Callable[[Job], bool]:
    """Tell of others in the queue if they ask for the same."""
    asks = asks_as(job)
    return lambda other: other.run.queue == job.run.queue and asks(other)


class Search:
    """Victims for one run, from the most saturated queue at the highest level of the tree."""

    def __init__(self, state: State, shares: Mapping[str, float], job: Job, now_s: float) -> None:
        self._state, self._shares = state, shares
        self._path = state.tree.paths[job.run.queue]
        self._wanted = job.step_size * job.run.gpus_per_rank
        self._before = {name: account.allocated for name, account in state.accounts.items()}
        self.others = [other for other in movable(state, now_s) if other.run.queue != job.run.queue]
        self._jobs: dict[str, list[Job]] = {}

    def following(self, others: Sequence[Job]) -> Unit | None:
        """The next victim among others."""
        self._jobs = {}
        for other in others:
            self._jobs.setdefault(other.run.queue, []).append(other)
        return self._among("")

    def _among(self, parent: str) -> Unit | None:
        """The next victim below ``parent``, a queue on the run's own path (or the top)."""
        for name in self._by_saturation(parent):
            if name in self._path:
                found = self._among(name)
            else:
                own = next(own for own in self._path if self._state.tree.queues[own].parent == parent)
                found = self._inside(name) if self._may_take(own, name) else None
            if found is not None:
                return found
        return None

    def _inside(self, name: str) -> Unit | None:
        if self._state.tree.is_leaf(name):
            return best_unit(self._jobs.get(name, []))
        return next((unit for child in self._by_saturation(name) if (unit := self._inside(child)) is not None), None)

    def _by_saturation(self, parent: str) -> list[str]:
        names = self._state.tree.children.get(parent, [])
        return sorted(names, key=lambda name: -saturation(self._state, self._shares, name))

    def _may_take(self, own: str, other: str) -> bool:
        """The other is above its share; or above its guarantee, and the own side stays within its guarantee."""
        accounts = self._state.accounts
        if accounts[other].allocated > self._shares[other]:
            return True
        within = accounts[own].allocated + self._wanted <= accounts[own].guaranteed
        return within and accounts[other].allocated > accounts[other].guaranteed

    def keeps_order(self) -> bool:
        """Tell, with the run placed, if each queue above it is within its share, or behind those it took from."""
        return all(self._is_in_order(name) for name in self._path)

    def _is_in_order(self, name: str) -> bool:
        allocated = self._state.accounts[name].allocated
        if allocated <= self._shares[name] or allocated <= self._before[name]:
            return True
        if name == self._path[0]:
            return False
        own = saturation(self._state, self._shares, name)
        siblings = self._state.tree.children[self._state.tree.queues[name].parent]
        taken = [other for other in siblings if self._state.accounts[other].allocated < self._before[other]]
        return all(saturation(self._state, self._shares, other) >= own for other in taken)
