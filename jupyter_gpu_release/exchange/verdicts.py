"""Numbers of the notebook's objects in a process that does not keep them alive, and verdicts on the objects by these:
what a run changed, and what leads to such.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .shallow import Heap


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


@dataclass
class Verdicts:
    """``changed``: objects whose own state is another now. ``apart``: these, and all that lead to one of them.

    What is in ``kept`` and not in ``apart`` is as it was, with all that it leads to.
    """

    changed: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)


def compare(before: Iterable[Heap], after: Iterable[Heap], *, also_apart: Iterable[int] = ()) -> Verdicts:
    """Compare what values were with what they are. An object of which no earlier state is known counts as changed.

    ``also_apart``: objects that cannot stand alone.
    """
    then, now = _join(before), _join(after)
    common = then.states.keys() & now.states.keys()
    changed = {
        number
        for number, state in now.states.items()
        if number not in common or not then.states[number].equals(state) or _is_parted(number, then, now, common)
    }
    return Verdicts(changed, _leading_to(changed.union(also_apart), now), set(now.states))


def _join(heaps: Iterable[Heap]) -> Heap:
    """All objects of several values."""
    joined = Heap()
    for heap in heaps:
        for number, state in heap.states.items():
            joined.states.setdefault(number, state)
        for number, others in heap.sharing.items():
            joined.sharing.setdefault(number, set()).update(others)
    return joined


def _is_parted(number: int, then: Heap, now: Heap, common: set[int]) -> bool:
    """Tell if it shares something (memory) with others than before, of those that are still there."""
    return then.sharing.get(number, set()) & common != now.sharing.get(number, set()) & common


def _leading_to(changed: set[int], heap: Heap) -> set[int]:
    """Objects through which one comes to a changed one; and those that share something with one of them."""
    holders: dict[int, set[int]] = {}
    for number, state in heap.states.items():
        for part in state.parts:
            holders.setdefault(part, set()).add(number)
    found, waiting = set(changed), list(changed)
    while waiting:
        number = waiting.pop()
        new = (holders.get(number, set()) | heap.sharing.get(number, set())) - found
        found |= new
        waiting += new
    return found
