"""Verdicts on the objects that went to a run, by their numbers: what the run changed, and what leads to such."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .shallow import Heap


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
