"""Shallow states: what each object of a pickle is, apart from the other objects that it holds.

A pickle is what reducers give, so it is enough to read it; nothing of it is built or called. An object that has a
number is a part of its holders by that number. All else (numbers, texts, tuples, what a reducer makes for the moment)
is a part by its content. So no state depends on an address.

Example: in ``box = {"w": w, "n": 1}`` the state of ``box`` is ``dict, "w", object 2, "n", 1``, whatever is in ``w``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..unpickling import SteppedUnpickler, Trust

#: tokens of one state; a state with more of them is not compared (a temporary object that thousands of objects share)
MOST_TOKENS = 4_000_000


class TooLargeError(Exception):
    """The states would be much larger than what was pickled."""


class Part(int):
    """The number of an object that a state refers to."""


class Again(int):
    """A temporary object that stood in the same state before."""


class _Global(str):
    """A class or function, by its name."""

    __slots__ = ()


class _Float(bytes):
    """The eight bytes of a float: -0.0 is not 0.0, and NaN is NaN."""

    __slots__ = ()


class _Tag(str):
    """The next tokens."""

    __slots__ = ()


_LIST, _DICT, _SET, _FROZEN, _BYTES, _CALL, _NEW = map(_Tag, ("list", "dict", "set", "frozen", "bytes", "call", "new"))
_STATE, _ITEM, _ENTRY, _END, _TUPLE, _READ_ONLY = map(_Tag, ("state", "item", "entry", "end", "tuple", "read-only"))


class _Thing:
    """An object as its reducer gave it; ``number``: its own, if it has one."""

    __slots__ = ("is_known", "number", "parts")

    def __init__(self, *parts: Any) -> None:
        self.parts = list(parts)
        self.number: int | None = None
        #: whether the rest of the pickle can refer to it
        self.is_known = False

    @property
    def is_called(self) -> bool:
        """Tell if a call made it, so that its items are not all that it is."""
        return self.parts[0] is _CALL or self.parts[0] is _NEW


@dataclass(frozen=True)
class State:
    """``kinds`` tells ``True`` from 1. ``temporaries``: those among the tokens that others may share, by id."""

    tokens: tuple[Any, ...]
    kinds: tuple[type, ...]
    parts: frozenset[int]
    temporaries: frozenset[int]

    def equals(self, other: State) -> bool:
        """Tell if an object with this state has not changed."""
        return self.kinds == other.kinds and self.tokens == other.tokens


@dataclass
class Heap:
    """``states``: of the objects with a number. ``root``: what stands for the whole value.

    ``sharing``: number → other numbered objects that hold one of its temporary objects, too (two tensors, one storage).
    """

    states: dict[int, State] = field(default_factory=dict)
    root: State | None = None
    sharing: dict[int, set[int]] = field(default_factory=dict)


def read_heap(stream: bytes, buffers: Sequence[Any], number_at: Callable[[int], int | None]) -> Heap:
    """Read one pickle. ``buffers``: what stands for its out-of-band buffers, each with an ``__eq__``; ``number_at``:
    place in the pickle's memo → the number of that object.

    Raises :class:`TooLargeError`.
    """
    reader = _Reader(stream, buffers)
    value = reader.load()
    for place, thing in reader.memo.items():
        if type(thing) is _Thing and thing.number is None and thing.parts[0] is not _FROZEN:
            thing.number = number_at(place)
    heap = Heap()
    things: dict[int, _Thing] = {}
    for thing in reader.memo.values():
        if type(thing) is _Thing and thing.number is not None:
            things.setdefault(thing.number, thing)
    left = [MOST_TOKENS]
    heap.root = _flatten([value], left)
    for number, thing in things.items():
        heap.states[number] = _flatten(thing.parts, left, thing)
    _note_sharing(heap)
    return heap


def _note_sharing(heap: Heap) -> None:
    holders: dict[int, list[int]] = {}
    for number, state in heap.states.items():
        for temporary in state.temporaries:
            holders.setdefault(temporary, []).append(number)
    for together in holders.values():
        if len(together) > 1:
            for number in together:
                heap.sharing.setdefault(number, set()).update(together)


def _flatten(parts: Iterable[Any], left: list[int], owner: _Thing | None = None) -> State:
    tokens: list[Any] = []
    numbers: set[int] = set()
    inside: dict[int, int] = {} if owner is None else {id(owner): 0}
    waiting = [iter(parts)]
    while waiting:
        for part in waiting[-1]:
            kind = type(part)
            if kind is _Thing:
                if part.number is not None:
                    numbers.add(part.number)
                    tokens.append(Part(part.number))
                    continue
                if id(part) in inside:
                    tokens.append(Again(inside[id(part)]))
                    continue
                inside[id(part)] = len(inside)
                waiting.append(iter(part.parts))
                break
            if kind is tuple:
                tokens.append(_TUPLE)
                waiting.append(iter(part))
                break
            tokens.append(part)
        else:
            waiting.pop()
            if waiting:
                tokens.append(_END)
    left[0] -= len(tokens)
    if left[0] < 0:
        raise TooLargeError
    inside.pop(id(owner), None)
    return State(tuple(tokens), tuple(map(type, tokens)), frozenset(numbers), frozenset(inside))


class _Reader(SteppedUnpickler):
    """Follows a pickle's opcodes, and makes a :class:`_Thing` for each object: it imports, builds and calls nothing."""

    dispatch: ClassVar[dict[int, Any]] = dict(SteppedUnpickler.dispatch)

    def __init__(self, stream: bytes, buffers: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(stream), Trust.OWN, buffers)

    def find_class(self, module: str, name: str) -> Any:
        """The name of a global."""
        return _Global(f"{module}:{name}")

    def get_extension(self, code: int) -> None:
        """A global that has a number (``copyreg.add_extension``): Python would keep the name as what it names."""
        self.append(_Global(f"extension {code}"))

    def _instantiate(self, kind: Any, arguments: list[Any]) -> None:
        """An instance as picklers of before wrote it (OBJ, INST)."""
        self.append(_Thing(_CALL, kind, tuple(arguments)))

    def load_known(self) -> None:
        super().load_memoize()
        if type(self.stack[-1]) is _Thing:
            self.stack[-1].is_known = True

    def load_drop(self) -> None:
        """Also what a function that sets an object's state has returned: ``setter(object, state)``."""
        dropped = self.stack[-1] if self.stack else None
        super().load_pop()
        if type(dropped) is _Thing and dropped.parts[0] is _CALL and not dropped.is_known:
            setter, arguments = dropped.parts[1:]
            # else an object that was met within itself, so that it is there already
            if type(arguments) is tuple and len(arguments) == 2 and type(arguments[0]) is _Thing:
                arguments[0].parts += [_STATE, setter, arguments[1]]

    def load_float(self) -> None:
        self.append(_Float(self.read(8)))

    def load_bytearray(self) -> None:
        super().load_bytearray8()
        self.stack[-1] = _Thing(_BYTES, bytes(self.stack[-1]))

    def load_list(self) -> None:
        self.append(_Thing(_LIST))

    def load_dict(self) -> None:
        self.append(_Thing(_DICT))

    def load_set(self) -> None:
        self.append(_Thing(_SET))

    def load_frozen(self) -> None:
        items = self.pop_mark()
        self.append(_Thing(_FROZEN, *items))

    def load_call(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = _Thing(_CALL, self.stack[-1], arguments)

    def load_new(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = _Thing(_NEW, self.stack[-1], arguments)

    def load_new_ex(self) -> None:
        keywords, arguments = self.stack.pop(), self.stack.pop()
        self.stack[-1] = _Thing(_NEW, self.stack[-1], arguments, keywords)

    def load_state(self) -> None:
        state = self.stack.pop()
        self.stack[-1].parts += [_STATE, state]

    def load_items(self) -> None:
        items = self.pop_mark()
        self.stack[-1].parts += [_ITEM, *items] if self.stack[-1].is_called else items

    def load_item(self) -> None:
        item = self.stack.pop()
        self.stack[-1].parts += [_ITEM, item] if self.stack[-1].is_called else [item]

    def load_entries(self) -> None:
        entries = self.pop_mark()
        self.stack[-1].parts += [_ENTRY, *entries] if self.stack[-1].is_called else entries

    def load_entry(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1].parts += [_ENTRY, key, value] if self.stack[-1].is_called else [key, value]

    def load_read_only(self) -> None:
        self.stack[-1] = (_READ_ONLY, self.stack[-1])


_OPCODES: dict[bytes, Callable[[Any], None]] = {
    pickle.MEMOIZE: _Reader.load_known,
    pickle.POP: _Reader.load_drop,
    pickle.BINFLOAT: _Reader.load_float,
    pickle.BYTEARRAY8: _Reader.load_bytearray,
    pickle.EMPTY_LIST: _Reader.load_list,
    pickle.EMPTY_DICT: _Reader.load_dict,
    pickle.EMPTY_SET: _Reader.load_set,
    pickle.FROZENSET: _Reader.load_frozen,
    pickle.REDUCE: _Reader.load_call,
    pickle.NEWOBJ: _Reader.load_new,
    pickle.NEWOBJ_EX: _Reader.load_new_ex,
    pickle.BUILD: _Reader.load_state,
    pickle.APPENDS: _Reader.load_items,
    pickle.ADDITEMS: _Reader.load_items,
    pickle.APPEND: _Reader.load_item,
    pickle.SETITEMS: _Reader.load_entries,
    pickle.SETITEM: _Reader.load_entry,
    pickle.READONLY_BUFFER: _Reader.load_read_only,
}
_Reader.dispatch.update({opcode[0]: load for opcode, load in _OPCODES.items()})
