"""Parts of a graph that something outside of it holds, too: a name that was not sent, a module, a thread.

Only of them somebody sees whether they stay the same objects. Counted, not searched for: Python knows how many
references an object has, and those from within the graph can be counted.
"""

from __future__ import annotations

import array
import gc
import itertools
import random
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .in_place import dict_of, is_open, module_of

_OF_C = (random.Random, array.array)
_OF_ARRAYS = ("numpy", "torch", "torch.nn.parameter")


def _references_while_asked() -> int:
    """References that are ours: a pickler's memo, its copy, the loop and, by Python's version, the question."""
    memo = [[0]]  # stands for a pickler's
    entries = {0: (0, memo[0])}.values()
    count = sys.getrefcount
    return {number: count(thing) for number, thing in entries}[0]


_OURS = _references_while_asked()


def held_elsewhere(
    memo: Mapping[int, tuple[int, Any]], *, but: Collection[int], ours: int = _OURS, every_kind: bool = False
) -> list[int]:
    """Numbers of lists, dicts and other objects without weak references that others hold; ``but``: ids to pass over.

    ``memo``: id → (number, object) of all that is in the graph, the copy of a pickler's memo; ``ours``: references to
    each of them that are ours. ``every_kind``: also those that take weak references.
    """
    entries = memo.values()
    is_asked = _can_change if every_kind else _takes_no_weak_reference
    kinds = {kind for kind in {type(thing) for _, thing in entries} if is_asked(kind)}
    count = sys.getrefcount
    many = {
        id(thing): (number, count(thing) - ours)
        for number, thing in entries
        if type(thing) in kinds and count(thing) - ours > 1 and id(thing) not in but
    }
    if not many:
        return []
    inside = Counter(filter(many.__contains__, map(id, _held_in(memo))))
    return [number for ident, (number, all_of_them) in many.items() if all_of_them > inside[ident]]


def references_of_ours(memo: Mapping[int, tuple[int, Any]]) -> int:
    """How many references to each object are ours: as many as to the facts, which nobody else holds."""
    return min((sys.getrefcount(thing) for _, thing in memo.values()), default=0)


def _can_change(kind: type) -> bool:
    module = module_of(kind)
    if module in _OF_ARRAYS or module.startswith("numpy.random"):
        return True
    return issubclass(kind, _OF_C) or (is_open(kind) and not issubclass(kind, type))


def _takes_no_weak_reference(kind: type) -> bool:
    if kind.__weakrefoffset__ != 0:
        return False
    module = module_of(kind)
    return module.startswith("numpy.random") or (is_open(kind) and not module.startswith("pandas."))


def _held_in(memo: Mapping[int, tuple[int, Any]]) -> Iterator[Any]:
    """Everything that the objects of a graph refer to, as often as they do."""
    things = [thing for _, thing in memo.values()]
    has_attributes = {kind for kind in set(map(type, things)) if kind.__dictoffset__ and not issubclass(kind, type)}
    attributes = [dict_of(thing) for thing in things if type(thing) in has_attributes]
    beside = [found for found in attributes if found is not None and id(found) not in memo]
    of_classes = [dict(vars(thing)) for thing in things if issubclass(type(thing), type)]
    of_arrays = (thing.flat for thing in things if _is_of_objects(thing))
    return itertools.chain(gc.get_referents(*things, *beside, *of_classes), *of_arrays)


def _is_of_objects(thing: Any) -> bool:
    kind: Any = type(thing)
    return module_of(kind) == "numpy" and kind.__name__ == "ndarray" and bool(thing.dtype.hasobject)
