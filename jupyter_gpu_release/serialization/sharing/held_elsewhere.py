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

from ...adapters.adapter import Adapter
from ...adapters.registry import adapters_of, first_answer, is_of_library
from .in_place import dict_of, is_open

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
    is_asked = can_change if every_kind else _takes_no_weak_reference
    kinds = {kind for kind in set(map(type, things)) if is_asked(kind)}
    many = {
        id(thing): count - ours
        for count, thing in zip(_counts(things), things, strict=True)
        if count - ours > 1 and type(thing) in kinds
    }
    for ident in (*but, *memory_of(things)):
        many.pop(ident, None)
    if not many:
        return []
    inside = Counter(filter(many.__contains__, map(id, itertools.chain(_held_in(memo, things), own))))
    return [memo[ident][0] for ident, all_of_them in many.items() if all_of_them > inside[ident]]


def references_of_ours(memo: Mapping[int, tuple[int, Any]]) -> int:
    """How many references to each object are ours: as many as to the facts, which nobody else holds."""
    return min(_counts([thing for _, thing in memo.values()]), default=0)


def told_apart(memo: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
    """Of objects by their numbers those that can be changed, so that somebody sees if they stay themselves."""
    kinds = {kind for kind in set(map(type, memo.values())) if _is_told(kind)}
    inside = set(memory_of(list(memo.values())))
    return ((number, thing) for number, thing in memo.items() if type(thing) in kinds and id(thing) not in inside)


def _is_told(kind: type) -> bool:
    return kind is object or issubclass(kind, type) or can_change(kind)


def can_change(kind: type) -> bool:
    """Tell if objects of a class are looked at."""
    if issubclass(kind, type):
        return False
    answer = first_answer(adapter.can_change(kind) for adapter in adapters_of(kind))
    return issubclass(kind, _OF_C) or is_open(kind) if answer is None else answer


def _of_libraries(things: list[Any]) -> Iterator[tuple[Adapter, Any]]:
    asked = {kind: adapters_of(kind)[:-1] for kind in set(map(type, things)) if is_of_library(kind)}
    return ((adapter, thing) for thing in _of_kinds(things, asked.keys()) for adapter in asked[type(thing)])


def memory_of(things: list[Any]) -> Iterator[int]:
    """Ids of the memory of some things (frames) that changes hands whenever somebody writes to one of them."""
    return itertools.chain.from_iterable(adapter.own_memory(thing) for adapter, thing in _of_libraries(things))


def _takes_no_weak_reference(kind: type) -> bool:
    return kind.__weakrefoffset__ == 0 and can_change(kind)


def _held_in(memo: Mapping[int, tuple[int, Any]], things: list[Any]) -> Iterator[Any]:
    """Everything that the objects of a graph refer to, as often as they do."""
    kinds = set(map(type, things))
    attributes = map(dict_of, _of_kinds(things, {kind for kind in kinds if kind.__dictoffset__ and not _is_meta(kind)}))
    beside = [found for found in attributes if found is not None and id(found) not in memo]
    of_classes = [dict(vars(thing)) for thing in _of_kinds(things, set(filter(_is_meta, kinds)))]
    hidden = (adapter.hidden_parts(thing) for adapter, thing in _of_libraries(things))
    return itertools.chain(gc.get_referents(*things, *beside, *of_classes), itertools.chain.from_iterable(hidden))


def _of_kinds(things: list[Any], kinds: Set[type]) -> list[Any]:
    return [thing for thing in things if type(thing) in kinds] if kinds else []


def _is_meta(kind: type) -> bool:
    return issubclass(kind, type)
