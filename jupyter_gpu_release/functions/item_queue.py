"""``ItemQueue``: deals the items of ``launch_map`` out to its workers. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..protocol.fetch import ItemRequest, NextItem


@dataclass
class _Worker:
    #: items that it was given, and of which nothing has come back
    given: list[int] = field(default_factory=list)
    #: those of them that it has begun
    begun: set[int] = field(default_factory=set)
    #: the question that waits for an answer
    open: int = 0
    last: NextItem | None = None


class ItemQueue:
    """Workers are called by their runs. A worker may hold the next item while it works on one, as long as there are
    enough for the others; the last items go to whoever is free first.
    """

    def __init__(self, items: Iterable[int]) -> None:
        self._waiting = deque(items)
        self._workers: dict[str, _Worker] = {}
        self._dismissed: set[str] = set()

    @property
    def waiting(self) -> int:
        """The number of items that nobody was given."""
        return len(self._waiting)

    def on_question(self, run: str, request: ItemRequest) -> None:
        """A worker asks for its next item; a question may be repeated."""
        worker = self._workers.setdefault(run, _Worker())
        if request.begins is not None and request.begins in worker.given:
            worker.begun.add(request.begins)
        worker.open = request.ask

    def note_done(self, run: str, item: int) -> None:
        """Note that the outcome of an item is known."""
        worker = self._workers.get(run)
        if worker is not None and item in worker.given:
            worker.given.remove(item)
            worker.begun.discard(item)

    def take_out(self, item: int) -> bool:
        """Do not hand this one out; False: that has happened already."""
        if item not in self._waiting:
            return False
        self._waiting.remove(item)
        return True

    def dismiss_worker(self, run: str) -> None:
        """Give this worker nothing, whatever waits: it was told to end."""
        self._dismissed.add(run)

    def is_dismissed(self, run: str) -> bool:
        """Tell if a worker was told to end."""
        return run in self._dismissed

    def drop_waiting(self) -> list[int]:
        """Hand out nothing more; returns what was left."""
        left = list(self._waiting)
        self._waiting.clear()
        return left

    def take_answers(self) -> list[tuple[str, NextItem]]:
        """The answers that can be given now, by worker."""
        found = []
        for run, worker in self._workers.items():
            if worker.open and (answer := self._answer(run, worker)) is not None:
                worker.open, worker.last = 0, answer
                found.append((run, answer))
        return found

    def _answer(self, run: str, worker: _Worker) -> NextItem | None:
        if worker.last is not None and worker.last.ask == worker.open:
            return worker.last
        if run in self._dismissed:
            return NextItem(worker.open)
        is_busy = bool(worker.given)
        if is_busy and len(self._waiting) < len(self._workers):
            return None
        if not self._waiting:
            return NextItem(worker.open)
        worker.given.append(self._waiting.popleft())
        return NextItem(worker.open, worker.given[-1])

    def on_worker_ended(self, run: str, *, is_sure: bool = True) -> list[int]:
        """A worker has ended: what it had not begun waits again, first of all. Returns what it had: that is lost.

        ``is_sure`` False: it may have begun more than is known here, so all that it was given is lost.
        """
        worker = self._workers.pop(run, None) or _Worker()
        lost = worker.begun if is_sure else set(worker.given)
        self._waiting.extendleft(item for item in reversed(worker.given) if item not in lost)
        return sorted(lost)
