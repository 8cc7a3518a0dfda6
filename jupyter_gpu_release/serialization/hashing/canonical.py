"""Writes values in a form that is the same for equal ones in every process; see :mod:`.hashing.value_hash`."""

from __future__ import annotations

import functools
import io
import pickle
import struct
import types
import typing
from array import array
from collections.abc import Callable
from typing import Any

from blake3 import blake3

from ...adapters.registry import adapters_of, first_answer, is_of_library
from ..identity import class_id, function_id, is_by_reference
from ..pickler import OUT_OF_BAND_BYTES, GraphPickler
from ..rebuild import NamespaceInfo
from .atoms import ATOMS, LARGE_BYTES, digest_of_bytes, tagged_bytes
from .code_hash import class_parts, code_parts, is_of_python, module_of

_FLUSH_BYTES = 1 << 16


class UnkeyableError(Exception):
    """A value has no stable digest; the message says which and why."""


class Writer:
    """``numbers``: id → number of each object met; ``keep`` holds them; ``pickler``: only its reducers are used."""

    def __init__(self, realm: NamespaceInfo, whole: set[Any], *, outer: Writer | None = None) -> None:
        #: only its reducers are used; holds what they make
        self.pickler: GraphPickler = outer.pickler if outer else GraphPickler(io.BytesIO(), realm, [])
        self.pickler.whole |= whole
        self._realm = realm
        self.numbers: dict[int, int] = {}
        self.keep: list[Any] = []
        self.idents: dict[int, str] = {}
        self.modules: set[str] = outer.modules if outer else set()
        self._open_sets: set[int] = outer._open_sets if outer else set()
        self._handlers: dict[type, Handler] = {}
        self._hash = blake3()
        self._text = bytearray()

    def take_digest(self) -> str:
        """The digest of all since the last one."""
        self._hash.update(bytes(self._text))
        self._text.clear()
        found = str(self._hash.hexdigest())
        self._hash = blake3()
        return found

    # ------------------------------------------------------------------------------------- writing
    def write_bytes(self, tag: bytes, data: bytes = b"") -> None:
        """A tag and bytes."""
        self._text += tagged_bytes(tag, data)
        if len(self._text) > _FLUSH_BYTES:
            self._hash.update(bytes(self._text))
            self._text.clear()

    def write_texts(self, tag: bytes, *words: str | None) -> None:
        """A tag and texts, each by itself."""
        self.write_bytes(
            tag,
            b"".join(tagged_bytes(b"." if w is None else b"w", (w or "").encode("utf-8", "replace")) for w in words),
        )

    def write_value(self, value: Any) -> None:
        """Write one value."""
        kind = type(value)
        atom = ATOMS.get(kind)
        if atom is not None:
            self.write_bytes(*atom(value))
            return
        if kind is tuple and all(type(part) in ATOMS for part in value):
            self.write_bytes(b"t", struct.pack("<q", len(value)))
            for part in value:
                self.write_bytes(*ATOMS[type(part)](part))
            return
        number = self.numbers.get(id(value))
        if number is not None:
            self.write_bytes(b"@", struct.pack("<q", number))
            return
        handler = self._handlers.get(kind)
        if handler is None:
            handler = self._handlers[kind] = _handler(kind)
        if is_of_library(kind) and (words := first_answer(each.words_of(value) for each in adapters_of(kind))):
            self.write_texts(b"d", *words)
            return
        self.numbers[id(value)] = len(self.numbers)
        self.keep.append(value)
        handler(self, value)

    def write_sequence(self, tag: bytes, values: Any) -> None:
        """A sequence of values."""
        self.write_bytes(tag, struct.pack("<q", len(values)))
        for value in values:
            self.write_value(value)

    # ---------------------------------------------------------------------------------- containers
    def _list(self, value: list[Any]) -> None:
        kinds = set(map(type, value))
        if kinds == {float}:
            self.write_bytes(b"LF", array("d", value).tobytes())
        elif kinds == {str}:
            self.write_bytes(b"LS", array("q", map(len, value)).tobytes())
            self.write_bytes(b"ls", "".join(value).encode("utf-8", "surrogatepass"))
        else:
            self.write_sequence(b"L", value)

    def _tuple(self, value: tuple[Any, ...]) -> None:
        self.write_sequence(b"T", value)

    def _dict(self, value: dict[Any, Any]) -> None:
        self.write_bytes(b"D", struct.pack("<q", len(value)))
        for key, item in value.items():
            self.write_value(key)
            self.write_value(item)

    def _set(self, value: Any) -> None:
        """Elements in the order of their digests: theirs in memory depends on the process."""
        if id(value) in self._open_sets:
            raise UnkeyableError("a set that holds itself")
        self._open_sets.add(id(value))
        try:
            ordered = sorted(value, key=self._digest_alone)
        finally:
            self._open_sets.discard(id(value))
        if type(value) in (set, frozenset):
            self.write_sequence(b"S" if type(value) is set else b"Z", ordered)
            return
        self.write_bytes(b"Su")
        self._class(type(value))
        self.write_sequence(b"S", ordered)
        self.write_value(getattr(value, "__dict__", None))

    def _digest_alone(self, value: Any) -> str:
        alone = Writer(self._realm, set(), outer=self)
        alone.write_value(value)
        self.keep.append(alone.keep)
        return alone.take_digest()

    def _bytearray(self, value: bytearray) -> None:
        self.write_bytes(b"A", bytes(value) if len(value) < LARGE_BYTES else digest_of_bytes(value).encode())

    def _buffer(self, value: pickle.PickleBuffer) -> None:
        raw = value.raw()
        if raw.nbytes < OUT_OF_BAND_BYTES:  # travels in the stream, and stays read-only there
            self.write_bytes(b"br" if raw.readonly else b"bw", bytes(raw))
        else:
            self.write_bytes(b"B", struct.pack("<q", raw.nbytes) + bytes.fromhex(digest_of_bytes(raw)))

    # ------------------------------------------------------------------------- things that have names
    def _module(self, module: types.ModuleType) -> None:
        if not is_by_reference(module) and not getattr(module, "is_deferred", False):
            raise UnkeyableError(f"the module {module.__name__} was made here")
        self.modules.add(module.__name__)
        self.write_texts(b"M", module.__name__)

    def _type_variable(self, variable: typing.TypeVar) -> None:
        self.write_texts(b"V", variable.__name__)
        self.write_sequence(b"v", [variable.__bound__, *variable.__constraints__, variable.__covariant__])

    def _class(self, cls: type) -> None:
        if is_by_reference(cls) or is_of_python(cls):
            self._global(cls, cls.__qualname__)
            return
        self.idents[self.numbers[id(cls)]] = class_id(cls)
        self.write_texts(b"C", cls.__qualname__, cls.__module__)
        for part in class_parts(cls):
            self.write_value(part)

    def _function(self, function: types.FunctionType) -> None:
        if is_by_reference(function):
            self._global(function, function.__qualname__)
            return
        ident = function_id(function)
        if ident:
            self.idents[self.numbers[id(function)]] = ident
        self.write_texts(b"F", function.__qualname__, function.__module__)
        self._code(function.__code__)
        state = function.__defaults__, function.__kwdefaults__, function.__annotations__, dict(vars(function))
        for part in (*state, function.__closure__):
            self.write_value(part)
        self._globals_of(function)

    def _cached_function(self, function: Any) -> None:
        """Without what it remembers, which it could find out again."""
        reduced = self.pickler.reducer_override(function)
        if reduced is NotImplemented:
            self._reduced(function)
            return
        self.keep.append(reduced)
        maker, arguments, (*_, attributes), *_rest = reduced
        self.write_bytes(b"O")
        self.write_value(maker)
        self.write_sequence(b"(", arguments)
        self.write_value(attributes)

    def _globals_of(self, function: types.FunctionType) -> None:
        """Those of the notebook are names of the graph; of others, what the function reads of them."""
        where, foreign = self.pickler._where(function)
        self.write_texts(b"G", where if isinstance(where, str) else "*" if foreign is not None else None)
        for name in sorted(foreign or ()):
            self.write_texts(b"g", name)
            self.write_value((foreign or {})[name])

    def _code(self, code: types.CodeType) -> None:
        facts, values, inner = code_parts(code)
        self.write_bytes(b"K", facts)
        self.write_sequence(b"k", values)
        for nested in inner:
            self._code(nested)

    def _global(self, thing: Any, name: str) -> None:
        module = module_of(thing)
        if module:
            self.modules.add(module)
        self.write_texts(b"R", module, name)

    # ----------------------------------------------------------------------------- everything else
    def _reduced(self, value: Any) -> None:
        """Take apart what pickle would write, in the order in which pickle itself asks."""
        kind = type(value)
        reduced = self.pickler.reducer_override(value)
        if reduced is NotImplemented:
            reducer = self.pickler.dispatch_table.get(kind)
            reduced = reducer(value) if reducer is not None else value.__reduce_ex__(5)
        self.keep.append(reduced)
        if isinstance(reduced, str):
            self.write_texts(b"r", kind.__module__, kind.__qualname__)
            self._global(value, reduced)
            return
        maker, arguments, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
        self.write_bytes(b"O")
        self.write_value(maker)
        self.write_sequence(b"(", arguments)
        for part in (state, setter):
            self.write_value(part)
        self.write_sequence(b"[", list(items or ()))
        self.write_bytes(b"{")
        for key, item in pairs or ():
            self.write_value(key)
            self.write_value(item)
        self.write_bytes(b"}")


Handler = Callable[[Writer, Any], None]
_HANDLERS: dict[type, Handler] = {
    list: Writer._list,
    tuple: Writer._tuple,
    dict: Writer._dict,
    set: Writer._set,
    frozenset: Writer._set,
    bytearray: Writer._bytearray,
    pickle.PickleBuffer: Writer._buffer,
    types.ModuleType: Writer._module,
    types.FunctionType: Writer._function,
    types.CodeType: Writer._code,
    functools._lru_cache_wrapper: Writer._cached_function,
    typing.TypeVar: Writer._type_variable,
}


def _handler(kind: type) -> Handler:
    known = _HANDLERS.get(kind)
    if known is not None:
        return known
    if issubclass(kind, type):
        return Writer._class
    if issubclass(kind, types.ModuleType):
        return Writer._module
    if issubclass(kind, set | frozenset) and kind.__reduce__ in (set.__reduce__, frozenset.__reduce__):
        return Writer._set
    return Writer._reduced
