"""The order in which waiting runs are looked at: queues against their siblings, runs against those of their queue."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ..placement import one_type
from ..plugins import queue_order, run_order
from ..state import Job, Kind, State


class _Entry(NamedTuple):
    """The oldest of some runs that are alike, and where it stands among them.

    Or, with the first parts of their key only, all kinds of one user and priority: they are told apart when their turn
    comes, which a shorter key makes sure of. No two have the same ordinal.
    """

    key: tuple[tuple[float, ...], ...]
    ordinal: int
    job: Job
    alike: Kind | None = None
    at: int = 0
    kinds: Collection[Kind] = ()


class Contest:
    """Waiting runs in the order in which they are looked at; what was started meanwhile counts.

    Of runs that are alike only the oldest competes. Once it has failed the others would, too, so they are left out,
    unless :meth:`again` is called.
    """

    def __init__(
        self,
        state: State,
        shares: Mapping[str, float],
        now_s: float,
        takes_part: Callable[[Job], bool] | None = None,
        kinds: Iterable[Kind] | None = None,
    ) -> None:
        self._state, self._shares = state, shares
        self._heaps: dict[str, list[_Entry]] = {}
        #: queue → its key among its siblings, and the leaf below it whose run is next
        self._found: dict[str, tuple[tuple[float, ...], str] | None] = {}
        self._key, self._first_key = run_order.keys(state, now_s), run_order.first_keys(state, now_s)
        self._made = 0
        self._last: _Entry | None = None
        self._takes_part = takes_part
        self._out: list[Callable[[Job], bool]] = []
        #: (queue, user or all) → GPUs (thousandths) that a rule keeps from their runs there
        self._refused: dict[tuple[str, str | None], int] = {}
        if kinds is None:
            for queue, groups in state.groups.items():
                self._heaps[queue] = [self._unopened(kinds.values()) for kinds in groups.values()]
        else:
            for kind in kinds:
                self._enter(kind, self._heaps.setdefault(kind.jobs[0][2].run.queue, []))
        #: queue → users whose runs have several priorities, where that is among themselves
        self._mixed = {name: _mixed(groups) for name, groups in state.groups.items() if _is_by_user(state, name)}
        for job in state.growing():
            if self._is_in_contest(job):
                entries = self._heaps.setdefault(job.run.queue, [])
                entries.append(_Entry(self._key(job), job.ordinal, job))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def _unopened(self, kinds: Collection[Kind]) -> _Entry:
        job = next(iter(kinds)).jobs[0][2]
        self._made -= 1
        return _Entry(self._first_key(job), self._made, job, kinds=kinds)

    def _open(self, heap: list[_Entry]) -> None:
        """Put the kinds of the first entry, which is not opened yet, in its place."""
        for kind in heapq.heappop(heap).kinds:
            self._enter(kind, heap)

    def _enter(self, kind: Kind, heap: list[_Entry], start: int = 0) -> None:
        """Let the next run of a kind compete."""
        jobs = kind.jobs
        for at in range(start, len(jobs)):
            job = jobs[at][2]
            if not job.held and job.step_size:
                if self._refused and self._is_refused(job):
                    return
                if start or self._is_in_contest(job):
                    heapq.heappush(heap, _Entry(self._key(job), job.ordinal, job, kind, at))
                return

    def refuse(self, job: Job, *, others: bool = False) -> None:
        """Leave out a user's runs in a queue that ask for as much as ``job`` or more, as a rule stops them, too; with
        ``others`` those of all users.
        """
        key, gpus = (job.run.queue, None if others else job.run.user), job.step_size * job.run.gpus_per_rank
        self._refused[key] = min(gpus, self._refused.get(key, gpus))
        if others:
            heap = self._heaps[job.run.queue]
            heap[:] = [entry for entry in heap if entry.kinds or not self._is_refused(entry.job)]
            heapq.heapify(heap)
        self._forget(job.run.queue)

    def _is_refused(self, job: Job) -> bool:
        gpus, run = job.step_size * job.run.gpus_per_rank, job.run
        return any(gpus >= self._refused.get((run.queue, who), gpus + 1) for who in (run.user, None))

    def _is_in_contest(self, job: Job) -> bool:
        if self._takes_part is not None and not self._takes_part(job):
            return False
        return not self._out or not any(is_out(job) for is_out in self._out)

    def pop(self) -> Job | None:
        """The next run, taken out."""
        best = self._first_of("")
        if best is None:
            return None
        leaf = best[1]
        self._last = heapq.heappop(self._heaps[leaf])
        if self._mixed.get(leaf):
            self._last = self._favourite(leaf, self._last)
        self._forget(leaf)
        return self._last.job

    def _favourite(self, leaf: str, turn: _Entry) -> _Entry:
        """The run that takes the turn of another one of its user, where priorities count among these only."""
        user, heap = turn.job.run.user, self._heaps[leaf]
        if user not in self._mixed.get(leaf, ()):
            return turn
        for entry in [entry for entry in heap if entry.kinds and entry.job.run.user == user]:
            heap.remove(entry)
            for kind in entry.kinds:
                self._enter(kind, heap)
        heapq.heapify(heap)
        own = [entry for entry in heap if entry.job.run.user == user]
        best = min(own, key=lambda entry: (-entry.job.run.priority, entry.key), default=turn)
        if best.job.run.priority <= turn.job.run.priority:
            return turn
        heap.remove(best)
        heap.append(turn)
        heapq.heapify(heap)
        return best

    def again(self, *, grow: bool = False) -> None:
        """Let the next run compete that is like the one of the last :meth:`pop`; ``grow``: that one, too.

        Called when something was started: without ``grow`` others may have been preempted for it.
        """
        entry = self._last
        assert entry is not None, "something was popped"
        heap = self._heaps[entry.job.run.queue]
        if grow and entry.job.step_size:
            heapq.heappush(heap, _Entry(self._key(entry.job), entry.job.ordinal, entry.job))
        if entry.alike is not None:
            self._enter(entry.alike, heap, entry.at + 1)
        if grow:
            self._forget(entry.job.run.queue)
        else:
            self._found.clear()

    def drop(self, is_out: Callable[[Job], bool]) -> None:
        """Leave out all runs of whose kind the first is out."""
        self._out.append(is_out)
        for name, heap in self._heaps.items():
            left = [entry for entry in heap if entry.kinds or not is_out(entry.job)]
            if len(left) < len(heap):
                heapq.heapify(left)
                self._heaps[name] = left
                self._forget(name)

    def _forget(self, leaf: str) -> None:
        for name in self._state.tree.paths[leaf]:
            self._found.pop(name, None)

    def _first_of(self, name: str) -> tuple[tuple[float, ...], str] | None:
        """Key and leaf of the best queue below ``name``."""
        children = self._state.tree.children.get(name, ())
        known = [found for child in children if (found := self._known(child)) is not None]
        return min(known, key=_first) if known else None

    def _known(self, name: str) -> tuple[tuple[float, ...], str] | None:
        if name not in self._found:
            leaf: str | None = name
            if self._state.tree.children.get(name):
                below = self._first_of(name)
                leaf = None if below is None else below[1]
            elif not self._is_in(name):
                leaf = None
            self._found[name] = None if leaf is None else (self._queue_key(name, leaf), leaf)
        return self._found[name]

    def _queue_key(self, name: str, leaf: str) -> tuple[float, ...]:
        job = self._heaps[leaf][0].job
        gpus = job.step_size * job.run.gpus_per_rank
        kind = one_type(self._state, job) if self._state.by_type else None
        return queue_order.key(self._state, self._shares, name, gpus, kind)

    def _is_in(self, name: str) -> bool:
        """Bring the first run of a leaf to the top; keys that have changed since they were made are made anew."""
        heap = self._heaps.get(name)
        while heap:
            entry = heap[0]
            if self._refused and not entry.kinds and self._is_refused(entry.job):
                heapq.heappop(heap)
                continue
            key = (self._first_key if entry.kinds else self._key)(entry.job)
            if key != entry.key:
                heapq.heapreplace(heap, entry._replace(key=key))
            elif entry.kinds:
                self._open(heap)
            else:
                return True
        return False


def _is_by_user(state: State, queue: str) -> bool:
    return state.tree.queues[queue].is_by_user


def _mixed(groups: Iterable[tuple[int, str]]) -> set[str]:
    counts = Counter(user for _, user in groups)
    return {user for user, count in counts.items() if count > 1}


def _first(found: tuple[tuple[float, ...], str]) -> tuple[float, ...]:
    return found[0]
