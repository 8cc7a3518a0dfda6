"""A loop of a restartable cell: its rounds, and the state of its iterator."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .iterators import Exchanged, NamesOf, exchange_in_bars, pack, undo_in_bars


class ResumableLoop:
    """``number``: which of the cell's loops it is. ``before_round``: called before each round."""

    def __init__(
        self,
        number: int,
        iterator: Iterator[Any],
        before_round: Callable[[ResumableLoop], None],
        exchanged: Exchanged | None = None,
    ) -> None:
        self.number = number
        self.iterator = iterator
        #: rounds that have begun
        self.rounds = 0
        #: those of earlier attempts
        self.rounds_before = 0
        #: of how many; None: not known
        self.total: int | None = None
        #: seconds between saves without notice, as :func:`.resumable` was told
        self.every_s: float | None = None
        #: how things were when its header was evaluated first; None: the iterator itself is saved
        self.header: dict[str, Any] | None = None
        #: digests of large arrays that its header reads
        self.large: list[bytes] = []
        self._before_round = before_round
        self._exchanged = exchange_in_bars(iterator) if exchanged is None else exchanged

    def items(self) -> Iterator[Any]:
        """The items, by C code only: so no frame of ours is in the user's tracebacks."""
        return map(_SECOND, zip(self, self.iterator))  # noqa: B905 - the iterator ends it

    def __iter__(self) -> ResumableLoop:
        return self

    def __next__(self) -> None:
        self._before_round(self)
        self.rounds += 1
        if self._exchanged and self.rounds > self.rounds_before + 1:  # they have begun
            undo_in_bars(self._exchanged)

    def end(self) -> None:
        """The cell has left it."""
        undo_in_bars(self._exchanged)

    def packed(self, names_of: NamesOf) -> tuple[Any, ...]:
        """Its iterator, for a save."""
        return pack(self.iterator, self.rounds - self.rounds_before, names_of, self._exchanged)

    def skip_rounds(self, count: int) -> None:
        """Go on to where an earlier attempt was, without the loop's body."""
        for _ in range(count):
            next(self.iterator, None)
        self.rounds = self.rounds_before = count


_SECOND = operator.itemgetter(1)


def length_of(items: Iterable[Any]) -> int | None:
    """The number of items; None: it is not known."""
    with contextlib.suppress(Exception):  # a length of the user's own
        return len(items)  # type: ignore[arg-type]
    return None
