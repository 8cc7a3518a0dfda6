"""A loop of a restartable cell: its rounds, its place, and the header that is evaluated to give what it goes over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...ipc.notice import Flag
from .places import FirstLook, NamesOf, Place, Places


@dataclass
class Header:
    """A header of a loop that is being evaluated. ``first``: how things were before; None: nobody has looked."""

    number: int
    first: FirstLook | None = None
    #: ``resumable`` was called in it
    is_marked: bool = False
    every_s: float | None = None


class Loop:
    """``number``: which of the cell's loops it is. ``iterator``: None of a ``while`` loop, whose place is its test.

    ``before_round`` is called before a round if ``look[0]`` is not 0.
    """

    def __init__(
        self,
        number: int,
        iterator: Iterator[Any] | None,
        before_round: Callable[[Loop], None],
        look: Flag,
        places: Places | None = None,
    ) -> None:
        self.number = number
        self.iterator = iterator
        #: the cell's code has said that it may be left
        self.is_marked = False
        #: rounds that have begun; of a ``while`` loop known in a gang only
        self.rounds = 0
        #: those of earlier attempts
        self.rounds_before = 0
        #: of how many; None: not known
        self.total: int | None = None
        #: seconds between saves without notice, as :func:`.resumable` was told
        self.every_s: float | None = None
        self._before_round = before_round
        self._look = look
        self.places = places or Places()
        if places is None and iterator is not None:
            self.places.begin(iterator)

    def items(self) -> Iterator[Any]:
        """The items. Its frame is left out of the user's tracebacks."""
        assert self.iterator is not None
        look, rounds = self._look, self.rounds
        first = rounds + 1
        self._before_round(self)
        for item in self.iterator:
            self.rounds = rounds = rounds + 1
            if rounds == first:
                self.places.end()  # bars have begun
            yield item
            if look[0]:
                self._before_round(self)

    def place(self, names_of: NamesOf) -> Place:
        """Where its iterator is."""
        self.places.names_of, self.places.rounds = names_of, self.rounds - self.rounds_before
        return self.places.place(self.iterator)


def length_of(items: Iterable[Any]) -> int | None:
    """The number of items; None: it is not known."""
    with contextlib.suppress(Exception):  # a length of the user's own
        return len(items)  # type: ignore[arg-type]
    return None
