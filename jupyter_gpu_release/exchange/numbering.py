"""Numbers of the notebook's objects in a process that does not keep them alive."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable
from typing import Any


class Numbering:
    """``numbered``: number and object of all that arrived and that somebody could tell from its equal.

    ``find``: an object by its number where something holds it, strongly or weakly (None: it is gone). It raises
    ``KeyError`` where nothing does: a dict takes no weak reference. Such an object is known by its address and its
    class. Another can have got that address only after the first was gone here; and then nothing in the notebook but
    its holder among the inputs had it, so nobody can tell whether it was changed or replaced.
    """

    def __init__(self, numbered: Iterable[tuple[int, Any]], find: Callable[[int], Any]) -> None:
        self._find = find
        self._idents = array("Q")
        self._numbers = array("Q")
        self._kinds: list[type] = []
        for number, thing in numbered:
            self._idents.append(id(thing))
            self._numbers.append(number)
            self._kinds.append(type(thing))

    @functools.cached_property
    def _table(self) -> dict[int, tuple[int, type]]:
        return {
            ident: (number, kind) for ident, number, kind in zip(self._idents, self._numbers, self._kinds, strict=True)
        }

    def at(self, ident: int) -> int | None:
        """The number of what had this address when all arrived."""
        found = self._table.get(ident)
        return None if found is None else found[0]

    def of(self, thing: Any) -> int | None:
        """The number of an object; None: it did not arrive."""
        number, kind = self._table.get(id(thing), (None, None))
        if number is None or kind is not type(thing):
            return None
        try:
            return number if self._find(number) is thing else None
        except KeyError:
            return number
