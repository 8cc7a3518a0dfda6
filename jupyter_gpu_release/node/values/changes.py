"""Record of the objects that arrived at a rank.

Pickle numbers every object in both directions alike: number n of the kernel's pickler is number n of the rank's
unpickler. So parts of an input that was changed in place can be told to the notebook exactly.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import sys
import types
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from ...adapters.stdlib.values import REFERENCES, callback_of
from ...adapters.users_code import is_of_the_user
from ...exchange.verdicts import Numbering
from ...serialization.sharing.held_elsewhere import told_apart
from ...serialization.sharing.references import Key

_ATOMS = (str, bytes, int, float, complex, bool, type(None), range)


def is_immutable(value: Any) -> bool:
    """Tell if a value cannot be changed in place (a text of a class of its own may have attributes)."""
    if issubclass(type(value), _ATOMS):
        return type(value) in _ATOMS or not type(value).__dictoffset__
    return type(value) in (tuple, frozenset) and all(map(is_immutable, value))


_MOST = 20_000
_LONGEST = 10_000
_NOT_MUTABLE = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.ModuleType,
    types.MethodType,
    str,
    bytes,
    int,
    float,
    tuple,
    frozenset,
    weakref.ref,
    *weakref.ProxyTypes,
)
_SIZED = (list, dict, bytearray)


def drop_temporaries(memo: dict[int, Any]) -> None:
    """Take out of what arrived what nothing there refers to: arguments and states, which were read once.

    ``memo``: number → object; nothing else of ours holds them. An array stays, since others may look at its memory.
    """
    ours = next(map(sys.getrefcount, {0: object()}.values()))
    while gone := [
        number
        for number, count in zip(memo, map(sys.getrefcount, memo.values()), strict=True)
        if count == ours and not hasattr(type(memo[number]), "__array_interface__")
    ]:
        for number in gone:
            del memo[number]


class ArrivedNumbers:
    """Numbers, from ``first`` on, of all objects that arrived, by their addresses: holds none of them. Without: there
    were too many.

    Another object may get the address of one that is gone. It counts as that one where it is its equal, at the same
    place of an input. Nothing in the notebook tells them apart: :class:`ObjectIds` holds what something there could.
    """

    def __init__(self, memo: Mapping[int, Any], first: int = 0) -> None:
        self._first = first
        self._idents = array("Q", map(id, memo.values()))
        self._places = array("L", memo)

    @property
    def are_known(self) -> bool:
        """Tell if there are any."""
        return bool(self._idents)

    @functools.cached_property
    def _numbers(self) -> dict[int, int]:
        return {ident: self._first + place for ident, place in zip(self._idents, self._places, strict=True)}

    def keys_of(self, places: Iterable[int]) -> Iterator[tuple[int, Key]]:
        """Ids and keys of objects of which each is at its place as it was when it arrived."""
        numbers = self._numbers
        return ((ident, numbers[ident]) for ident in places if ident in numbers)


class ObjectIds:
    """Mutable objects that arrived, by their number.

    Kept alive are only those that take no weak reference and are light, and those that the notebook ``held_elsewhere``:
    they would not be gone there, either.
    """

    def __init__(self, memo: dict[int, Any], held_elsewhere: Iterable[int] = ()) -> None:
        self._objects: list[tuple[int, Callable[[], Any]]] = []
        #: their identity is all that they are, so it counts in results, too
        self._sentinels: list[tuple[int, Callable[[], Any]]] = []
        #: those that have a ``__del__`` of the user's
        self._ending: dict[int, Callable[[], Any]] = {}
        #: number → what something in the notebook holds beside the inputs
        self.held_elsewhere = {number: memo[number] for number in held_elsewhere if number in memo}
        self.add_arrived(memo)
        self._objects = [
            *((number, getter) for number, getter in self._objects if number not in self.held_elsewhere),
            *((number, _holder(thing)) for number, thing in self.held_elsewhere.items()),
        ]

    def add_arrived(self, memo: Mapping[int, Any], first: int = 0) -> None:
        """More have arrived, numbered from ``first`` on."""
        if len(memo) <= _MOST:
            light = light_among(memo.values())
            for number, thing in memo.items():
                getter = _getter(thing, light)
                if getter is not None:
                    (self._sentinels if type(thing) is object else self._objects).append((first + number, getter))
                    if is_of_the_user(getattr(type(thing), "__del__", None)):
                        self._ending[first + number] = getter

    def ended(self) -> list[int]:
        """Numbers of those whose ``__del__`` has run here."""
        return [number for number, getter in self._ending.items() if getter() is None]

    def getters(self) -> dict[int, Callable[[], Any]]:
        """Number → what finds that object as long as it is there; of all that something here holds."""
        return dict([*self._objects, *self._sentinels])

    def finder(self) -> Callable[[int], Any]:
        """Finds an object by its number, as long as it is there: None when it is not (known)."""
        getters = self.getters()
        return lambda number: getters[number]() if number in getters else None

    def numbers_of(self, is_written: Callable[[Any], bool], *, only_sentinels: bool) -> tuple[list[int], list[Any]]:
        """Numbers and objects of those that travel home."""
        asked = self._sentinels if only_sentinels else self._sentinels + self._objects
        found = [(number, thing) for number, getter in asked if is_written(thing := getter())]
        return [number for number, _ in found], [thing for _, thing in found]


def _getter(thing: Any, light: Set[int]) -> Callable[[], Any] | None:
    if type(thing) in REFERENCES and callback_of(thing) is not None:  # the others of a target are one object
        return _holder(thing)
    is_closure = type(thing) is types.FunctionType and thing.__closure__ is not None
    if issubclass(type(thing), _NOT_MUTABLE) and not is_closure:
        return None
    if id(thing) in light:
        return _holder(thing)
    return weakref.ref(thing) if _takes_weak_reference(thing) else None


def _holder(thing: Any) -> Callable[[], Any]:
    return lambda: thing


def _takes_weak_reference(thing: Any) -> bool:
    return type(thing).__weakrefoffset__ != 0


def light_among(things: Iterable[Any]) -> Set[int]:
    """Ids of those that take no weak reference, and hold nothing but plain values and one another."""
    asked = {
        id(thing): thing
        for thing in things
        if not issubclass(type(thing), _NOT_MUTABLE) and not _takes_weak_reference(thing)
    }
    holders: dict[int, list[int]] = {}
    heavy: set[int] = set()
    for ident, thing in asked.items():
        parts = _parts(thing)
        inner = None if parts is None else [id(part) for part in parts if not _is_plain(part)]
        if inner is None or any(part not in asked for part in inner):
            heavy.add(ident)
            continue
        for part in inner:
            holders.setdefault(part, []).append(ident)
    waiting = list(heavy)
    while waiting:
        above = set(holders.get(waiting.pop(), ())) - heavy
        heavy |= above
        waiting += above
    return asked.keys() - heavy


def _parts(thing: Any) -> list[Any] | None:
    """Parts of ``thing``; None: too many, or not visible to Python."""
    if type(thing) is types.SimpleNamespace:
        return list(vars(thing).values())
    if issubclass(type(thing), _SIZED) and len(thing) > _LONGEST:
        return None
    parts: list[Any] = []
    if issubclass(type(thing), dict):
        parts += [*dict.keys(thing), *dict.values(thing)]
    elif issubclass(type(thing), list):
        parts += list.__iter__(thing)
    if type(thing) in _SIZED:
        return parts
    for cls in type(thing).__mro__:
        if cls is collections.defaultdict:
            parts.append(thing.default_factory)
        elif "__slots__" in vars(cls):
            parts += _in_slots(thing, cls)
        elif cls not in (object, *_SIZED):
            return None
    return None if type(thing).__dictoffset__ else parts


def _in_slots(thing: Any, cls: type) -> Iterator[Any]:
    for member in vars(cls).values():
        if isinstance(member, types.MemberDescriptorType):
            with contextlib.suppress(AttributeError):  # empty
                yield member.__get__(thing, cls)


def _is_plain(part: Any) -> bool:
    if issubclass(type(part), types.FunctionType):
        return not (part.__closure__ or part.__defaults__ or part.__kwdefaults__ or vars(part))
    return issubclass(type(part), (type, enum.Enum)) or is_immutable(part)


def numbering_of(memo: Mapping[int, Any], objects: ObjectIds) -> Numbering:
    """The numbering of what arrived."""
    getters: dict[int, Callable[[], Any]] = {}

    def find(number: int) -> Any:
        if not getters:
            getters.update(objects.getters())
        return getters[number]()

    return Numbering(told_apart(memo), find)


class NameSnapshot:
    """Record of what a name held, to tell later whether it still holds it; keeps nothing heavy alive.

    A plain container takes no weak reference: only its address is known. Another can have got that if nothing here
    holds the first any more. Then nothing in the notebook but its name does (:class:`ObjectIds` would hold it), and
    nobody can tell whether it was changed or replaced.
    """

    __slots__ = ("_ident", "_reference", "_value")

    def __init__(self, value: Any) -> None:
        self._ident = id(value)
        self._reference: weakref.ref[Any] | None = None
        self._value: Any = None
        if is_immutable(value) or issubclass(type(value), _NOT_MUTABLE):
            self._value = value
            return
        try:
            self._reference = weakref.ref(value)
        except TypeError:  # a plain container
            return

    def original(self, value: Any) -> Any:
        """Return what the name held: ``value``, if it is that, or what can be found elsewhere; None: it is gone."""
        if self.holds(value):
            return value
        return None if self._reference is None else self._reference()

    def holds(self, value: Any) -> bool:
        """Tell if ``value`` is (as far as can be told) the same object."""
        if id(value) != self._ident:
            return False
        return self._reference is None or self._reference() is value
