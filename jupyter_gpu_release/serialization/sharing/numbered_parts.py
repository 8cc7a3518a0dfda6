"""Numbers of the objects deep inside a value, the same in two processes that have the same value.

The numbers of a graph's pickle would do, but where there are many objects nobody keeps a table of those until it is
known that a result refers to one of them.
"""

from __future__ import annotations

import collections
import functools
import pickle
import types
from collections.abc import Mapping
from typing import Any

from ... import streams
from ...adapters.registry import adapters_of, first_answer, is_of_library
from .array_memory import KnownMemory, Place, layout_of

_CHANGEABLE = (list, dict, set, bytearray, collections.deque)
_NOT_COUNTED = (
    str,
    bytes,
    int,
    float,
    complex,
    tuple,
    frozenset,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.ModuleType,
    types.MethodType,
)
#: elements of sets that have no number, so that it does not matter in which order they come
_PLAIN = (str, bytes, int, float, complex, type(None))


@streams.named
class PartOf:
    """Object ``number`` of the ``total`` that are in what the name held."""

    __slots__ = ("name", "number", "total")

    def __init__(self, name: str, number: int, total: int) -> None:
        self.name = name
        self.number = number
        self.total = total

    def __reduce__(self) -> tuple[Any, ...]:
        return PartOf, (self.name, self.number, self.total)


def number_parts(value: Any) -> list[Any]:
    """The things in ``value`` that can be told from their like, in an order that only its structure decides.

    Nothing at all if there is a set of objects in it: each process has those in another order.
    """
    walk = _Walk()
    try:
        walk.dump(value)
    except (RecursionError, pickle.PicklingError):
        return []
    entries = walk.memo.copy().values()
    things: list[Any] = [None] * len(entries)
    for number, thing in entries:
        things[number] = thing
    if any(not _is_plain_set(thing) for thing in things if type(thing) in (set, frozenset)):
        return []
    counted = {kind for kind in set(map(type, things)) if not issubclass(kind, _NOT_COUNTED)}
    return [thing for thing in things if type(thing) in counted]


def _is_plain_set(elements: Any) -> bool:
    return all(map(_is_plain, elements))


def _is_plain(thing: Any) -> bool:
    return isinstance(thing, _PLAIN) or (type(thing) is tuple and all(map(_is_plain, thing)))


class LargeInput:
    """An input that the run left as it was; ``pickler`` has just written it and holds what is in it."""

    def __init__(self, name: str, value: Any, pickler: Any) -> None:
        self.name = name
        self._value = value
        self._pickler = pickler

    @functools.cached_property
    def objects_by_id(self) -> Mapping[int, tuple[int, Any]]:
        """Everything in it, by id."""
        found: dict[int, tuple[int, Any]] = self._pickler.memo.copy()
        return found

    @functools.cached_property
    def _things(self) -> list[Any]:
        return number_parts(self._value)

    @functools.cached_property
    def _numbers(self) -> dict[int, int]:
        return {id(each): number for number, each in enumerate(self._things)}

    def part_of(self, thing: Any) -> PartOf | None:
        """By which number the notebook finds it; None: it cannot."""
        number = self._numbers.get(id(thing))
        return None if number is None else PartOf(self.name, number, len(self._things))

    @functools.cached_property
    def _memory(self) -> KnownMemory:
        return KnownMemory((None, thing) for _, thing in self.objects_by_id.values() if is_of_library(type(thing)))

    @functools.cached_property
    def _numbered_memory(self) -> KnownMemory:
        return KnownMemory((self.part_of(thing), thing) for thing in self._things if is_of_library(type(thing)))

    def shares_memory_with(self, view: Any) -> bool:
        """Tell if a view looks at memory in it."""
        return self._memory.place_of(view) is not None

    def place_of(self, view: Any) -> Place | None:
        """The place that ``view`` looks at; None: the notebook cannot find it."""
        return self._numbered_memory.place_of(view)


def is_told_apart(thing: Any) -> bool:
    """Tell if somebody would miss that it is the same object: it can be changed."""
    if issubclass(type(thing), _CHANGEABLE) or type(thing).__dictoffset__ != 0:
        return True
    return is_of_library(type(thing)) and layout_of(thing) is not None


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Walk(pickle.Pickler):
    """Pickle's own walk through lists, dicts and tuples, in C; and through attributes, slots and object arrays."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=5)
        self._slots: dict[type, list[str] | None] = {}

    def reducer_override(self, thing: Any) -> Any:
        """The parts of everything that is not built in; nothing of it is ever read."""
        if thing is _leaf:
            return NotImplemented
        inside = None if issubclass(type(thing), _NOT_COUNTED) else self._inside(thing)
        return (_leaf, ()) if inside is None else (_leaf, (), inside)

    def _inside(self, thing: Any) -> list[Any] | None:
        if isinstance(thing, collections.deque | list):
            return [*thing, getattr(thing, "__dict__", None)]
        if isinstance(thing, dict):
            return [*dict.keys(thing), *dict.values(thing), getattr(thing, "__dict__", None)]
        kind = type(thing)
        adapters = adapters_of(kind)
        if any(adapter.is_opaque(kind) for adapter in adapters):
            items = first_answer(adapter.items_of(thing) for adapter in adapters)
            return None if items is None else list(items)
        try:
            slots = self._slots[kind]
        except KeyError:
            slots = self._slots[kind] = _slots(kind)
        if slots is None:
            return None
        return [getattr(thing, "__dict__", None), *(getattr(thing, name, None) for name in slots)]


def _leaf() -> None:
    raise TypeError("a walk is no pickle")


def _slots(kind: type) -> list[str] | None:
    """Names of its slots; None: its objects say themselves what is in them."""
    usual: Any = object
    for name in ("__reduce_ex__", "__reduce__", "__getstate__"):
        mine = getattr(kind, name)
        if mine is not getattr(usual, name) and not any(each.has_usual_state(mine) for each in adapters_of(kind)):
            return None
    return [
        name
        for cls in kind.__mro__
        if "__slots__" in vars(cls)
        for name, member in vars(cls).items()
        if isinstance(member, types.MemberDescriptorType)
    ]
