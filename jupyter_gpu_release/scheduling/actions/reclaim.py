"""Reclaim: a queue below its share takes from those above theirs, at each level of the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..decisions import Preempt, Start
from ..nodes import Group
from ..placement import suiting
from ..plugins.queue_order import saturation
from ..state import Job, State
from .allocate import asks_as
from .victims import Terms, Unit, best_unit, make_room, movable, next_ones


def reclaim(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start | Preempt]:
    """Serve each waiting run once, in order."""
    if not movable(state, now_s):
        return
    contest = next_ones(state, shares, now_s, lambda job: bool(_kinds_below_share(state, shares, job)))
    while (job := contest.pop()) is not None:
        decided = _reclaim_for(state, shares, job, now_s)
        yield from decided
        if decided:
            contest.again()
        else:
            contest.drop(_fails_like(job))


def _reclaim_for(state: State, shares: Mapping[str, float], job: Job, now_s: float) -> list[Start | Preempt]:
    for kind in _kinds_below_share(state, shares, job):
        groups = [group for group in suiting(state, job.run) if kind is None or state.type_of(group) == kind]
        search = Search(state, shares, job, now_s, kind, groups)
        terms = Terms(search.keeps_order, groups=None if kind is None else groups)
        decided = make_room(state, job, search.others, search.following, "reclaim", terms)
        if decided:
            return decided
    return []


def _kinds_below_share(state: State, shares: Mapping[str, float], job: Job) -> list[str | None]:
    """Types of GPU of which the run's queue stays within its share with the run; None: all together, where queues are
    not guaranteed GPUs by type.
    """
    queue, wanted = job.run.queue, job.step_size * job.run.gpus_per_rank
    kinds: list[str | None] = [None]
    if state.by_type:
        kinds = list(dict.fromkeys(state.type_of(group) for group in suiting(state, job.run)))
    return [kind for kind in kinds if state.account(queue, kind).allocated + wanted <= state.share(shares, queue, kind)]


def _fails_like(job: Job) -> Callable[[Job], bool]:
    """Tell of others in the queue if they ask for the same."""
    asks = asks_as(job)
    return lambda other: other.run.queue == job.run.queue and asks(other)


class Search:
    """Victims for one run, from the most saturated queue at the highest level of the tree."""

    def __init__(
        self,
        state: State,
        shares: Mapping[str, float],
        job: Job,
        now_s: float,
        kind: str | None,
        groups: Sequence[Group],
    ) -> None:
        self._state, self._shares, self._now_s = state, shares, now_s
        self._path = state.tree.paths[job.run.queue]
        self._wanted = job.step_size * job.run.gpus_per_rank
        self._kind = kind
        self._before = {name: self._allocated(name) for name in state.accounts}
        nodes = {name for group in groups for name in group.names} if kind is not None else set[str]()
        self.others = [
            other
            for other in movable(state, now_s)
            if other.run.queue != job.run.queue and (kind is None or not nodes.isdisjoint(other.places))
        ]
        self._jobs: dict[str, list[Job]] = {}

    def _allocated(self, queue: str) -> int:
        return self._state.account(queue, self._kind).allocated

    def _share(self, queue: str) -> float:
        return self._state.share(self._shares, queue, self._kind)

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
            return best_unit(self._jobs.get(name, []), self._now_s)
        return next((unit for child in self._by_saturation(name) if (unit := self._inside(child)) is not None), None)

    def _by_saturation(self, parent: str) -> list[str]:
        names = self._state.tree.children.get(parent, [])
        return sorted(names, key=lambda name: -saturation(self._state, self._shares, name, self._kind))

    def _may_take(self, own: str, other: str) -> bool:
        """The other is above its share; or above its guarantee, and the own side stays within its guarantee."""
        if self._allocated(other) > self._share(other):
            return True
        mine, theirs = (self._state.account(name, self._kind) for name in (own, other))
        return mine.allocated + self._wanted <= mine.guaranteed and theirs.allocated > theirs.guaranteed

    def keeps_order(self) -> bool:
        """Tell, with the run placed, if each queue above it is within its share, or behind those it took from."""
        return all(self._is_in_order(name) for name in self._path)

    def _is_in_order(self, name: str) -> bool:
        allocated = self._allocated(name)
        if allocated <= self._share(name) or allocated <= self._before[name]:
            return True
        if name == self._path[0]:
            return False
        own = saturation(self._state, self._shares, name, self._kind)
        siblings = self._state.tree.children[self._state.tree.queues[name].parent]
        taken = [other for other in siblings if self._allocated(other) < self._before[other]]
        return all(saturation(self._state, self._shares, other, self._kind) >= own for other in taken)
