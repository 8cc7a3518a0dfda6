"""References of results to inputs: what a run did not change is one object with the notebook's, not a copy of it.

A result that holds an input which the run left as it was refers to it by the number that the input has in the graph
that was sent. A view on such an input's memory refers to its place in that memory. The kernel puts its own object
there. What is referred to travels along behind the names, as it would without: whoever has no such object (another
kernel, a script, ``load()``) reads it there.
"""

from __future__ import annotations

import functools
import io
import pickle
import struct
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...unpickling import Trust, loads
from .array_memory import KnownMemory, NotThereError, Place, place_in
from .numbered_parts import LargeInput, PartOf, is_told_apart, number_parts

_MAGIC = b"JGR\x01"  # a pickle begins otherwise
_HEAD = struct.Struct("<QQQ")
#: what nobody tells apart, or knows by a name or an id of its own
_NOT_REFERRED = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.ModuleType,
    types.MethodType,
)

_PLAIN = frozenset(_NOT_REFERRED)

#: the number of an object in the graph that was sent; where there are too many to number them, the name that held it,
#: the name and the place among its :func:`parts_of`, or the number among all that is in it
Key = int | str | tuple[str, int] | PartOf
Live = Callable[[Key], Any]


def _is_closure(thing: Any) -> bool:
    """A function that has no id of its own."""
    return isinstance(thing, types.FunctionType) and thing.__closure__ is not None


def parts_of(value: Any) -> list[Any]:
    """The things that a container holds, or the values of an object's attributes, in order."""
    if isinstance(value, list | tuple):
        return list(value)
    found = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    return list(found.values()) if isinstance(found, dict) else []


class HeldParts:
    """The parts of a large input: ``idents`` are their ids, 0 for what is not in its place any more.

    Its table is made when it is first asked: most cells that read a million objects give none of them back.
    """

    def __init__(self, name: str, idents: Sequence[int]) -> None:
        self._name = name
        self._idents = idents

    @functools.cached_property
    def _places(self) -> dict[int, int]:
        return dict(zip(self._idents, range(len(self._idents)), strict=True))

    def key_of(self, ident: int) -> tuple[str, int] | None:
        """The key of the part with this id."""
        place = self._places.get(ident)
        return None if place is None else (self._name, place)


class KnownInputs:
    """Objects of the notebook that are here as they arrived: ``keys`` by their ids, and all ``things``.

    ``held``: what large inputs hold, ``large``: all that is in them. ``with_copies``: what is referred to travels along
    for those who have it not.
    """

    def __init__(
        self,
        keys: Mapping[int, Key],
        things: Sequence[Any],
        held: Sequence[HeldParts] = (),
        large: Sequence[LargeInput] = (),
        *,
        with_copies: bool = True,
    ) -> None:
        self.keys = keys
        self.held = held
        self.large = large
        self.things = things  # so that no id is given away again
        self.with_copies = with_copies
        self.memory = KnownMemory((key, thing) for thing in things if (key := self.key_of(thing)) is not None)

    def key_of(self, thing: Any) -> Key | None:
        """The key of an object, if it has one."""
        found = self.keys.get(id(thing))
        if found is not None or not self.held or type(thing) in _PLAIN:
            return found
        return next((key for parts in self.held if (key := parts.key_of(id(thing))) is not None), None)

    def large_with(self, thing: Any) -> LargeInput | None:
        """The large input deep inside of which an object is that has no key."""
        if type(thing) in _PLAIN:
            return None
        return next((each for each in self.large if id(thing) in each.objects_by_id), None)


class References:
    """References that one dump makes."""

    def __init__(self, known: KnownInputs) -> None:
        self._known = known
        #: what is written now holds nothing of the notebook's
        self.are_off = False
        self._numbers: dict[int, int] = {}
        #: key of an object, or a place in the memory of one
        self._targets: list[Key | Place] = []
        self._things: list[Any] = []
        #: large inputs of which parts are written as copies, since they cannot be numbered
        self.copied: set[str] = set()

    def persistent_id(self) -> Callable[[Any], int | None]:
        """The function that pickle asks for each object, so it does little."""
        key_of, note, deep = self._known.key_of, self._note, self._note_deep
        has_large = bool(self._known.large)

        def number(thing: Any) -> int | None:
            found = None if self.are_off else key_of(thing)
            if found is None:
                return deep(thing) if has_large and not self.are_off else None
            return note(found, thing)

        return number

    def _note(self, key: Key, thing: Any) -> int | None:
        return None if issubclass(type(thing), _NOT_REFERRED) and not _is_closure(thing) else self._add(key, thing)

    def _note_deep(self, thing: Any) -> int | None:
        large = self._known.large_with(thing)
        if large is None or issubclass(type(thing), _NOT_REFERRED):
            return None
        part = large.part_of(thing)
        if part is None and is_told_apart(thing):
            self.copied.add(large.name)
        return None if part is None else self._add(part, thing)

    @property
    def with_copies(self) -> bool:
        """Tell if what is referred to travels along."""
        return self._known.with_copies

    def has_memory_of(self, view: Any) -> bool:
        """Tell if it looks at the memory of an input."""
        return self._known.memory.place_of(view) is not None

    def place_of(self, view: Any) -> int | None:
        """The number of a reference for a view on the memory of an input."""
        place = self._known.memory.place_of(view)
        if place is not None:
            return self._add(place, view)
        large = next((each for each in self._known.large if each.shares_memory_with(view)), None)
        if large is not None:
            place = large.place_of(view)
            if place is None:
                self.copied.add(large.name)
        return None if place is None else self._add(place, view)

    def _add(self, target: Key | Place, thing: Any) -> int:
        number = self._numbers.get(id(thing))
        if number is None:
            number = self._numbers[id(thing)] = len(self._targets)
            self._targets.append(target)
            self._things.append(thing)
        return number

    def wrap(self, stream: bytes, buffers: list[Any], write: Callable[[io.BytesIO, list[Any]], None]) -> bytes:
        """The stream with its references, if it makes any; ``write`` appends what they refer to."""
        if not self._targets:
            return stream
        targets = pickle.dumps(self._targets, protocol=5)
        file = io.BytesIO()
        file.write(_MAGIC + _HEAD.pack(len(stream), len(targets), len(buffers)))
        file.write(stream)
        file.write(targets)
        write(file, self._things)
        return file.getvalue()


class Parts(NamedTuple):
    """Table of contents of a stream: its names, and what they refer to."""

    begin: int = 0
    targets: Sequence[Key | Place] = ()
    things: int = 0
    #: buffers of the names; those of what they refer to follow
    buffers: int = 0

    @classmethod
    def of(cls, stream: bytes, trust: Trust) -> Parts:
        """Read a stream's head."""
        if not stream.startswith(_MAGIC):
            return cls()
        begin = len(_MAGIC) + _HEAD.size
        length, targets, buffers = _HEAD.unpack_from(stream, len(_MAGIC))
        things = begin + length + targets
        return cls(begin, loads(memoryview(stream)[begin + length : things], trust), things, buffers)


class Targets:
    """Answers for the references of one stream. ``live``: finds an object that was sent (KeyError: it is not known)."""

    def __init__(self, parts: Parts, live: Live | None, read: Callable[[Parts], Sequence[Any]]) -> None:
        self._parts = parts
        self._live = live
        self._read = read
        self._copies: Sequence[Any] | None = None
        self._found: dict[int, Any] = {}
        #: ids of the notebook's own objects that stand in the results now
        self.own: set[int] = set()
        #: large inputs of which the results hold copies of parts, since they were not found
        self.copied: set[str] = set()

    def __getitem__(self, number: int) -> Any:
        if number not in self._found:
            self._found[number] = self._find(number)
        return self._found[number]

    def _find(self, number: int) -> Any:
        target = self._parts.targets[number]
        if self._live is not None:
            try:
                if isinstance(target, Place):
                    return place_in(self._live(target.key), target)
                found = self._live(target)
            except (KeyError, NotThereError):
                key = target.key if isinstance(target, Place) else target
                self.copied |= {key.name} if isinstance(key, PartOf) else set()
            else:
                self.own.add(id(found))
                return found
        if self._copies is None:
            self._copies = self._read(self._parts)
        return self._copies[number]


class Originals:
    """Objects that were sent with a graph, found again by the keys that results refer to them by.

    ``names``: name → object; ``by_number``: asked for number in the stream → object when that is needed.
    ``in_turn``: nothing has changed them since, so that what is inside of one is found by its place.
    """

    def __init__(
        self, names: Mapping[str, Any], by_number: Callable[[], Mapping[int, Any]], *, in_turn: bool = True
    ) -> None:
        self._names = names
        self._by_number = by_number
        #: number → object, once somebody has asked for one
        self.numbered: Mapping[int, Any] | None = None
        self._in_turn = in_turn
        self._parts: dict[str, list[Any]] = {}
        self._inside: dict[str, list[Any]] = {}

    def find(self, key: Key) -> Any:
        """The object; raises ``KeyError``."""
        if isinstance(key, int):
            if self.numbered is None:
                self.numbered = self._by_number()
            return self.numbered[key]
        if isinstance(key, str):
            return self._names[key]
        if not self._in_turn:
            raise KeyError(key)
        if isinstance(key, PartOf):
            return self._numbered(self._names[key.name], key)
        name, place = key
        if name not in self._parts:
            self._parts[name] = parts_of(self._names[name])
        parts = self._parts[name]
        if place >= len(parts):
            raise KeyError(key)
        return parts[place]

    @property
    def caches(self) -> list[list[Any]]:
        """Lists of parts, made to find them again."""
        return [*self._inside.values(), *self._parts.values()]

    def _numbered(self, value: Any, part: PartOf) -> Any:
        if part.name not in self._inside:
            self._inside[part.name] = number_parts(value)
        found = self._inside[part.name]
        if len(found) != part.total:
            raise KeyError(part)
        return found[part.number]
