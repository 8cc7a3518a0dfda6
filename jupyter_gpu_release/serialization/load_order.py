"""The order of names in a graph: what code reads that runs while a value is rebuilt must be there before it.

A class of the notebook with ``__setstate__`` or ``__reduce__`` of its own may read the notebook's names there.
"""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cloudpickle import cloudpickle

#: methods that pickle calls, or that sets and dicts call while they are filled
_CALLED = frozenset(
    (
        "__setstate__",
        "__new__",
        "__hash__",
        "__eq__",
        "__setattr__",
        "__getattribute__",
        "__setitem__",
        "append",
        "extend",
        "add",
    )
)
#: with these any method may be
_REDUCING = frozenset(("__reduce__", "__reduce_ex__"))
_WRAPPED = (staticmethod, classmethod)
#: what is bound empty until it can be filled, since it may hold the very objects that look for it
_FILLED_LATER = (
    dict,
    list,
    set,
    collections.OrderedDict,
    collections.deque,
    weakref.WeakSet,
    weakref.WeakValueDictionary,
    weakref.WeakKeyDictionary,
)


def reads_while_rebuilt(cls: type, namespace: dict[str, Any]) -> dict[str, None]:
    """Names of ``namespace`` that rebuilding an object of ``cls`` may read, in order of discovery."""
    methods = dict(_methods(cls, namespace))
    started = methods if _REDUCING & methods.keys() else methods.keys() & _CALLED
    found: dict[str, None] = {}
    waiting = [methods[name].__code__ for name in started]
    seen: set[types.CodeType] = set()
    while waiting:
        code = waiting.pop()
        if code in seen:
            continue
        seen.add(code)
        waiting += [methods[name].__code__ for name in _attributes(code) if name in methods]
        for name in global_reads(code):
            if name in namespace and name not in found:
                found[name] = None
                waiting += _codes_of(namespace[name], namespace)
    return found


def _methods(cls: type, namespace: dict[str, Any]) -> Iterator[tuple[str, types.FunctionType]]:
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items() if base.__module__ == "__main__" else ():
            function = function_of(value)
            if type(function) is types.FunctionType and function.__globals__ is namespace:
                yield name, function


def function_of(value: Any) -> Any:
    """Of a method or a property. Other objects are asked nothing: they may be the notebook's and answer anything."""
    if issubclass(type(value), _WRAPPED):
        return value.__func__
    return value.fget if issubclass(type(value), property) else value


def _codes_of(value: Any, namespace: dict[str, Any]) -> list[types.CodeType]:
    if isinstance(value, types.FunctionType):
        return [value.__code__] if value.__globals__ is namespace else []
    if isinstance(value, type):
        return [method.__code__ for _, method in _methods(value, namespace)]
    return []


def global_reads(code: types.CodeType) -> dict[str, None]:
    """Names of globals that a function's code refers to, that of the functions in it included."""
    found: dict[str, None] = cloudpickle._extract_code_globals(code)
    return found


def _attributes(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _attributes(constant)


class LoadOrder:
    """Learns from each attempt to write a graph; ``first`` are the names to begin the next one with."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, None]] = {}
        self.first: list[str] = []

    def learn_needs(self, needs: Mapping[str, Iterable[str]], written: Iterable[str]) -> bool:
        """``needs``: name → names to be there before it. Whether to write again, in another order than ``written``."""
        place = {name: number for number, name in enumerate(written)}
        for name, reads in needs.items():
            self._before.setdefault(name, {}).update(dict.fromkeys(each for each in reads if each in place))
        is_wrong = any(
            place[each] >= place[name] or each not in self.first
            for name, reads in self._before.items()
            if name in place
            for each in reads
            if each in place
        )
        before, self.first = self.first, self._sorted()
        return is_wrong and self.first != before

    def _sorted(self) -> list[str]:
        done: dict[str, None] = {}
        for reads in list(self._before.values()):
            for name in reads:
                self._add(name, done, set())
        return list(done)

    def _add(self, name: str, done: dict[str, None], above: set[str]) -> None:
        if name in done or name in above:
            return
        for each in self._before.get(name, ()):
            self._add(each, done, above | {name})
        done[name] = None


def empty_containers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Containers to bind until the real ones are filled."""
    return {name: type(value)() for name, value in values.items() if type(value) in _FILLED_LATER}


class EarlyNames:
    """Binds names while a graph is being read, and takes that back. Names that are held back are not asked for."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._names: frozenset[str] = frozenset()
        self._was: dict[str, Any] = {}

    def bind_early(self, names: Iterable[str], empty: Mapping[str, Any]) -> None:
        """These are bound as soon as they are read, and ``empty`` ones before."""
        self._names = frozenset(names)
        self.note_read(empty)

    def note_read(self, values: Mapping[str, Any]) -> None:
        """These have been read."""
        for name in self._names & values.keys():
            self._was.setdefault(name, dict.get(self._namespace, name, self))
            self._namespace[name] = values[name]

    def restore_names(self) -> None:
        """All names are what they were before."""
        for name, value in self._was.items():
            if value is self:
                dict.pop(self._namespace, name, None)
            else:
                self._namespace[name] = value
        self._was.clear()
