"""The order in which waiting runs are looked at: queues against their siblings, runs against those of their queue."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from ..plugins import queue_order, run_order
from ..state import Job, Kind, State


@dataclass(order=True, slots=True)
class _Entry:
    """The oldest of some runs that are alike, and those behind it.

    Or, with the first parts of their key only, all kinds of one user and priority: they are told apart when their turn
    comes, which a shorter key makes sure of.
    """

    key: tuple[tuple[float, ...], ...]
    ordinal: int
    job: Job = field(compare=False)
    rest: Iterator[Job] = field(compare=False)
    kinds: Collection[Kind] = field(compare=False, default=())


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
        self._last: _Entry | None = None
        self._takes_part = takes_part
        self._out: list[Callable[[Job], bool]] = []
        if kinds is None:
            for queue, groups in state.groups.items():
                self._heaps[queue] = [self._unopened(kinds.values()) for kinds in groups.values()]
        else:
            for kind in kinds:
                self._enter(kind)
        for job in state.growing():
            if self._is_in_contest(job):
                entries = self._heaps.setdefault(job.run.queue, [])
                entries.append(_Entry(self._key(job), job.ordinal, job, iter(())))
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def _unopened(self, kinds: Collection[Kind]) -> _Entry:
        job = next(iter(kinds)).jobs[0][2]
        return _Entry(self._first_key(job), -1, job, iter(()), kinds)

    def _open(self, heap: list[_Entry]) -> None:
        """Put the kinds of the first entry, which is not opened yet, in its place."""
        for kind in heapq.heappop(heap).kinds:
            self._enter(kind)

    def _enter(self, kind: Kind) -> None:
        for at, (_, _, job) in enumerate(kind.jobs):
            if not job.held and job.step_size:
                if self._is_in_contest(job):
                    entry = _Entry(self._key(job), job.ordinal, job, _behind(kind, at))
                    heapq.heappush(self._heaps.setdefault(job.run.queue, []), entry)
                return

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
        self._forget(leaf)
        return self._last.job

    def again(self, *, grow: bool = False) -> None:
        """Let the next run compete that is like the one of the last :meth:`pop`; ``grow``: that one, too.

        Called when something was started: without ``grow`` others may have stepped aside for it.
        """
        entry = self._last
        assert entry is not None, "something was popped"
        if grow and entry.job.step_size:
            self._push(entry.job, iter(()))
        job = next(entry.rest, None)
        if job is not None:
            self._push(job, entry.rest)
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

    def _push(self, job: Job, rest: Iterator[Job]) -> None:
        heapq.heappush(self._heaps[job.run.queue], _Entry(self._key(job), job.ordinal, job, rest))

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
        return queue_order.key(self._state, self._shares, name, job.step_size * job.run.gpus_per_rank)

    def _is_in(self, name: str) -> bool:
        """Bring the first run of a leaf to the top; keys that have changed since they were made are made anew."""
        heap = self._heaps.get(name)
        while heap:
            entry = heap[0]
            key = (self._first_key if entry.kinds else self._key)(entry.job)
            if key != entry.key:
                entry.key = key
                heapq.heapreplace(heap, entry)
            elif entry.kinds:
                self._open(heap)
            else:
                return True
        return False


def _behind(kind: Kind, at: int) -> Iterator[Job]:
    return (job for _, _, job in islice(kind.jobs, at + 1, None) if not job.held and job.step_size)


def _first(found: tuple[tuple[float, ...], str]) -> tuple[float, ...]:
    return found[0]
