"""Search for inputs that changed in place.

Pickle numbers every object in both directions alike: number n of the kernel's pickler is number n of the rank's
unpickler. So parts of an input that was changed in place can be told to the notebook exactly.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import hashlib
import io
import sys
import types
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from ...serialization.pickler import GraphPickler
from ...serialization.rebuild import NamespaceInfo
from ...serialization.sharing.held_elsewhere import held_elsewhere
from ...serialization.sharing.numbered_parts import LargeInput
from ...serialization.sharing.references import Key, parts_of
from ...store.mapped.mapping import GraphMap
from ...store.mapped.memory import address_of

_ATOMS = (str, bytes, int, float, complex, bool, type(None), range)


class _Buffer(NamedTuple):
    address: int
    length: int
    #: where its pristine bytes are; else ``digest`` of them
    origin: GraphMap | None
    digest: bytes


class Fingerprint(NamedTuple):
    """Record of what a value looked like."""

    stream: bytes
    buffers: tuple[_Buffer, ...]
    #: ids of the objects in it, as they were met; of a large graph only of what the value itself holds
    idents: array[int]


class FingerprintReader:
    """Takes fingerprints of several values at one moment; memory that they share is read once.

    Memory that lies in a mapped graph file is not read at all: the file is its pristine copy.
    """

    def __init__(self, realm: NamespaceInfo, maps: Iterable[GraphMap], *, large: bool) -> None:
        self._realm = realm
        self._large = large
        self._maps = list(maps)
        self._digests: dict[tuple[int, int], bytes] = {}
        self._unchanged: dict[tuple[int, int], bool] = {}

    def read_fingerprint(self, value: Any) -> Fingerprint | None:
        """The fingerprint, or None when it cannot be taken (then the value counts as changed)."""
        dumped = self._dump(value)
        if dumped is None:
            return None
        stream, views = dumped
        return Fingerprint(stream, tuple(self._buffer(view) for view in views), self._idents(value))

    def is_same(self, before: Fingerprint | None, value: Any) -> bool:
        """Tell if ``value`` still looks as it did; False when that cannot be decided."""
        dumped = None if before is None else self._dump(value)
        if before is None or dumped is None:
            return False
        stream, views = dumped
        if stream != before.stream or len(views) != len(before.buffers):
            return False
        if not all(self._is_same_buffer(old, view) for old, view in zip(before.buffers, views, strict=True)):
            return False
        return self._large or not self._has_shared_new_parts(before.idents)

    def parts_in_place(self, before: Fingerprint, value: Any) -> tuple[Sequence[int], list[Any]]:
        """Ids of what a large ``value`` holds, 0 for what was not in this place before; and all that it holds."""
        parts = parts_of(value)
        now = array("Q", map(id, parts))
        if now == before.idents:
            return now, parts
        return [ident if ident == was else 0 for ident, was in zip(now, before.idents, strict=False)], parts

    def still_in_place(self, before: Fingerprint, value: Any) -> tuple[dict[int, int], list[Any]]:
        """Objects of ``value``, which was found to be the same last, by id, each at the place that it had then.

        (The address of one that is gone may be another's now, so an id alone says nothing.)
        """
        idents = before.idents
        found = {
            ident: (place, thing)
            for ident, (place, thing) in self._keep.memo.copy().items()
            if place < len(idents) and idents[place] == ident
        }
        return {ident: place for ident, (place, _) in found.items()}, [thing for _, thing in found.values()]

    def as_large(self, name: str, value: Any) -> LargeInput:
        """All that is in ``value``, which was found to be the same last."""
        return LargeInput(name, value, self._keep)

    # ---------------------------------------------------------------------------------- inside
    def _has_shared_new_parts(self, idents: array[int]) -> bool:
        """Tell if something took the place of its equal in a value, and others hold it, too: they may change it next.

        (``box["log"] = log = []``. Much that a pickler writes is made for it, and nothing in the value refers to that.)
        """
        memo = self._keep.memo.copy()
        made = {ident for ident, (place, _) in memo.items() if place >= len(idents) or idents[place] != ident}
        new, found = set[int](), memo.keys() - made if made else set[int]()
        while found:
            found = made.intersection(map(id, gc.get_referents(*(memo[ident][1] for ident in found)))) - new
            new |= found
        return bool(new and held_elsewhere(memo, but=memo.keys() - new, every_kind=True))

    def _idents(self, value: Any) -> array[int]:
        if self._large:
            return array("Q", map(id, parts_of(value)))
        memo = self._keep.memo.copy()
        idents = array("Q", bytes(8 * len(memo)))
        for ident, (place, _) in memo.items():
            idents[place] = ident
        return idents

    def _dump(self, value: Any) -> tuple[bytes, list[memoryview]] | None:
        file = io.BytesIO()
        buffers: list[memoryview] = []
        pickler = GraphPickler(file, self._realm, buffers, compact=True)
        try:
            pickler.dump(value)
        except Exception:  # noqa: BLE001 - reducers are foreign code
            return None
        self._keep = pickler  # its memo holds what the views look at
        raw = file.getvalue()
        # equal streams, not equal digests, decide for short ones: nothing to explain then
        return (raw if len(raw) <= 64 else hashlib.sha1(raw, usedforsecurity=False).digest()), buffers

    def _buffer(self, view: memoryview) -> _Buffer:
        address = address_of(view)
        origin = next((m for m in self._maps if m.holds(address, view.nbytes)), None) if address else None
        digest = b"" if origin is not None else self._digest(view)
        return _Buffer(address, view.nbytes, origin, digest)

    def _digest(self, view: memoryview) -> bytes:
        # a read-only view may be of something that was made for it, and its address be another's next
        address = 0 if view.readonly else address_of(view)
        key = (address, view.nbytes)
        found = self._digests.get(key) if address else None
        if found is None:
            found = self._digests[key] = hashlib.sha1(view, usedforsecurity=False).digest()
        return found

    def _is_same_buffer(self, before: _Buffer, view: memoryview) -> bool:
        if view.nbytes != before.length:
            return False
        address = address_of(view)
        if before.origin is None:
            return self._digest(view) == before.digest
        if address != before.address:
            return before.origin.equals(before.address, view)
        key = (address, view.nbytes)
        if key not in self._unchanged:
            self._unchanged[key] = before.origin.unchanged(address, view.nbytes)
        return self._unchanged[key]


def is_immutable(value: Any) -> bool:
    """Tell if a value cannot be changed in place (a text of a class of its own may have attributes)."""
    if issubclass(type(value), _ATOMS):
        return type(value) in _ATOMS or not type(value).__dictoffset__
    return type(value) in (tuple, frozenset) and all(map(is_immutable, value))


#: the memo's, and the question's own
_REFERENCES_WHILE_ASKED = 2
_MOST = 20_000
_LONGEST = 10_000
_NOT_MUTABLE = (
    type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.ModuleType, types.MethodType,
    str, bytes, int, float, tuple, frozenset, weakref.ref,
)  # fmt: skip
_SIZED = (list, dict, bytearray)


class ArrivedNumbers:
    """Numbers, from ``first`` on, of all objects that arrived, by their addresses: holds none of them. Without: there
    were too many.
    """

    def __init__(self, memo: dict[int, Any], first: int = 0) -> None:
        self._first = first
        self._idents = array("Q", map(id, memo.values()))

    @property
    def are_known(self) -> bool:
        """Tell if there are any."""
        return bool(self._idents)

    @functools.cached_property
    def _numbers(self) -> dict[int, int]:
        return {ident: number for number, ident in enumerate(self._idents, self._first)}

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

    def finder(self) -> Callable[[int], Any]:
        """Finds an object by its number, as long as it is there: None when it is not (known)."""
        getters = dict([*self._objects, *self._sentinels])
        return lambda number: getters[number]() if number in getters else None

    @property
    def has_sentinels(self) -> bool:
        """Tell if an ``object()`` arrived."""
        return bool(self._sentinels)

    def numbers_of(self, is_written: Callable[[Any], bool], *, only_sentinels: bool) -> tuple[list[int], list[Any]]:
        """Numbers and objects of those that travel home."""
        asked = self._sentinels if only_sentinels else self._sentinels + self._objects
        found = [(number, thing) for number, getter in asked if is_written(thing := getter())]
        return [number for number, _ in found], [thing for _, thing in found]


def is_held_here(memo: Mapping[int, Any], number: int) -> bool:
    """Tell if something that arrived holds the object: many an object's state is read once, and what holds it is made
    anew (a ``__dict__``, what ``__getstate__`` returned).
    """
    return number in memo and sys.getrefcount(memo[number]) > _REFERENCES_WHILE_ASKED


def _getter(thing: Any, light: Set[int]) -> Callable[[], Any] | None:
    if issubclass(type(thing), _NOT_MUTABLE):
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


class NameSnapshot:
    """Record of what a name held, to tell later whether it still holds it; keeps nothing heavy alive."""

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
        except TypeError:  # a plain container: its id must do; what is new and equal need not travel anyway
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
