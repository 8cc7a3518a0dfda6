"""Which objects of this rank are which objects of the notebook, without keeping what the cell lets go of alive.

Pickle numbers every object in both directions alike: number n of the kernel's pickler is number n of the rank's
unpickler. So parts of an input that was changed in place can be told to the notebook exactly.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from .fingerprint import is_immutable

_MOST = 20_000
_LONGEST = 10_000
_NOT_MUTABLE = (
    type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.ModuleType, types.MethodType,
    str, bytes, int, float, tuple, frozenset, weakref.ref,
)  # fmt: skip


class KnownObjects:
    """Mutable objects that arrived, by their number. Plain containers are held only if they hold nothing heavy."""

    def __init__(self, memo: dict[int, Any]) -> None:
        self._objects: list[tuple[int, Callable[[], Any]]] = []
        if len(memo) <= _MOST:
            for number, thing in memo.items():
                getter = _getter(thing)
                if getter is not None:
                    self._objects.append((number, getter))

    def among(self, is_written: Callable[[Any], bool]) -> tuple[list[int], list[Any]]:
        """Numbers and objects of those that travel home."""
        found = [(number, thing) for number, getter in self._objects if is_written(thing := getter())]
        return [number for number, _ in found], [thing for _, thing in found]


def _getter(thing: Any) -> Callable[[], Any] | None:
    if isinstance(thing, _NOT_MUTABLE):
        return None
    kind = type(thing)
    if kind in (list, dict, set):
        light = len(thing) <= _LONGEST and all(map(is_immutable, thing.values() if kind is dict else thing))
        return (lambda: thing) if light else None
    try:
        return weakref.ref(thing)
    except TypeError:
        return None


class Holder:
    """What a name held, so that a later look can tell whether it still does; keeps nothing heavy alive."""

    __slots__ = ("_ident", "_reference", "_value")

    def __init__(self, value: Any) -> None:
        self._ident = id(value)
        self._reference: weakref.ref[Any] | None = None
        self._value: Any = None
        if is_immutable(value) or isinstance(value, _NOT_MUTABLE):
            self._value = value
            return
        try:
            self._reference = weakref.ref(value)
        except TypeError:  # a plain container: its id must do; what is new and equal need not travel anyway
            return

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is (as far as can be told) the same object."""
        if id(value) != self._ident:
            return False
        return self._reference is None or self._reference() is value
