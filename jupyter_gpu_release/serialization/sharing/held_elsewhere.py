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
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any

from .in_place import dict_of, is_open, memory_of_frame, module_of

_OF_C = (random.Random, array.array)


def _counts(things: list[Any]) -> Iterator[int]:
    """How many references there are to each."""
    return map(sys.getrefcount, things)


def _references_while_asked() -> int:
    """References that are ours: a pickler's memo, its copy, the list and, by Python's version, the question."""
    memo = [[0]]  # stands for a pickler's
    table = {0: (0, memo[0])}
    return next(_counts([thing for _, thing in table.values()]))


_OURS = _references_while_asked()


def held_elsewhere(
    memo: Mapping[int, tuple[int, Any]],
    *,
    but: Collection[int],
    own: Iterable[Any] = (),
    ours: int = _OURS,
    every_kind: bool = False,
) -> list[int]:
    """Numbers of lists, dicts and other objects without weak references that others hold; ``but``: ids to pass over.

    ``memo``: id → (number, object) of all that is in the graph, the copy of a pickler's memo; ``ours``: references to
    each of them that are ours; ``own``: objects to which we hold further ones, as often as we do (no list,
    which would hold them, too). ``every_kind``: also those that take weak references.
    """
    things = [thing for _, thing in memo.values()]
    is_asked = _can_change if every_kind else _takes_no_weak_reference
    kinds = {kind for kind in set(map(type, things)) if is_asked(kind)}
    many = {
        id(thing): count - ours
        for count, thing in zip(_counts(things), things, strict=True)
        if count - ours > 1 and type(thing) in kinds
    }
    for ident in (*but, *_memory_of_frames(things)):
        many.pop(ident, None)
    if not many:
        return []
    inside = Counter(filter(many.__contains__, map(id, itertools.chain(_held_in(memo, things), own))))
    return [memo[ident][0] for ident, all_of_them in many.items() if all_of_them > inside[ident]]


def references_of_ours(memo: Mapping[int, tuple[int, Any]]) -> int:
    """How many references to each object are ours: as many as to the facts, which nobody else holds."""
    return min(_counts([thing for _, thing in memo.values()]), default=0)


def _can_change(kind: type) -> bool:
    if issubclass(kind, type):
        return False
    module = module_of(kind)
    if issubclass(kind, (*_kinds("numpy", "ndarray"), *_kinds("torch", "Tensor"))) or _is_generator(kind):
        return True
    if module.partition(".")[0] == "pandas":  # an index does not, and arrays are memory of frames
        return issubclass(kind, _frames())
    return issubclass(kind, _OF_C) or is_open(kind)


def _kinds(library: str, *names: str) -> tuple[type, ...]:
    """Classes of a library; none if it is not loaded."""
    module = sys.modules.get(library)
    return () if module is None else tuple(getattr(module, name) for name in names)


def _frames() -> tuple[type, ...]:
    return _kinds("pandas", "DataFrame", "Series")


def _memory_of_frames(things: list[Any]) -> Iterator[int]:
    """The arrays of frames change hands whenever somebody writes to one of them: they are nobody's but theirs."""
    frames = _frames()
    kinds = {kind for kind in set(map(type, things)) if issubclass(kind, frames)} if frames else set[type]()
    return itertools.chain.from_iterable(map(memory_of_frame, _of_kinds(things, kinds)))


def _takes_no_weak_reference(kind: type) -> bool:
    if kind.__weakrefoffset__ != 0:
        return False
    return _is_generator(kind) or (is_open(kind) and not module_of(kind).startswith("pandas."))


def _is_generator(kind: type) -> bool:
    """Of numpy's random numbers; the seed that one began with is part of it."""
    return module_of(kind).startswith("numpy.random") and kind.__name__ != "SeedSequence"


def _held_in(memo: Mapping[int, tuple[int, Any]], things: list[Any]) -> Iterator[Any]:
    """Everything that the objects of a graph refer to, as often as they do."""
    kinds = set(map(type, things))
    attributes = map(dict_of, _of_kinds(things, {kind for kind in kinds if kind.__dictoffset__ and not _is_meta(kind)}))
    beside = [found for found in attributes if found is not None and id(found) not in memo]
    of_classes = [dict(vars(thing)) for thing in _of_kinds(things, set(filter(_is_meta, kinds)))]
    arrays = _of_kinds(things, {kind for kind in kinds if issubclass(kind, _kinds("numpy", "ndarray"))})
    of_arrays = (each.flat for each in arrays if each.dtype.hasobject)
    bases = (each.base for each in arrays)  # which the garbage collector does not ask arrays for
    return itertools.chain(gc.get_referents(*things, *beside, *of_classes), bases, *of_arrays)


def _of_kinds(things: list[Any], kinds: Set[type]) -> list[Any]:
    return [thing for thing in things if type(thing) in kinds] if kinds else []


def _is_meta(kind: type) -> bool:
    return issubclass(kind, type)
