"""Things of which only the identity counts and that a module has as an attribute: they travel by its name.

A copy of a mark (``MISSING = object()``) is another mark, and Python finds a NaN in a list or dict by its identity.
Some of Python's own modules take a text or a tuple for a mark.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import operator
import sys
import types
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from .. import streams
from .adapter import Reducer

#: of more NaN than these only the value travels
_MOST_NANS = 10_000
#: these have no names that are the same everywhere
_NOT_IN = ("__main__", "__mp_main__", "builtins")

_names: dict[int, tuple[str, str]] = {}
_scanned = 0
_nans: dict[str, float] = {}
_keys: dict[int, str] = {}


def name_of(thing: Any) -> tuple[str, str] | None:
    """The module and attribute that a mark or NaN is; None: it is none of a module's."""
    global _names, _scanned
    if len(sys.modules) != _scanned:
        _scanned = len(sys.modules)
        _names = {}
        for module, attributes in _modules():
            for name, value in list(attributes.items()):
                if type(value) is object or (type(value) is float and value != value):
                    _names.setdefault(id(value), (module, name))
    found = _names.get(id(thing))
    return found if found is not None and _attributes(found[0]).get(found[1]) is thing else None


def _modules() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Those further up first: their names are the public ones."""
    names = sorted(sys.modules, key=lambda name: name.count("."))
    return ((name, _attributes(name)) for name in names if name not in _NOT_IN)


def _attributes(name: str) -> Mapping[str, Any]:
    """Without a module that waits to be imported noticing it. What only calls itself a module (cffi's) is none."""
    module: Any = sys.modules.get(name)
    is_one = issubclass(type(module), types.ModuleType)
    return types.ModuleType.__getattribute__(module, "__dict__") if is_one else {}


# -------------------------------------------------------------------------------------------- marks
def reducer_for(kind: type) -> Reducer | None:
    """The reducer for ``object``, and for a class without state of which its module has objects as attributes."""
    if kind is object:
        return _reduce_object
    own = any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
    if own or kind.__module__ in _NOT_IN or kind.__base__ is not object:
        return None
    has_some = any(type(value) is kind for value in list(_attributes(kind.__module__).values()))
    return _reduce_mark if has_some else None


def _reduce_object(pickler: Any, thing: Any) -> Any:
    found = name_of(thing)
    return NotImplemented if found is None else by_name(pickler, *found)


def _reduce_mark(pickler: Any, thing: Any) -> Any:
    if object.__getstate__(thing) is not None:
        return NotImplemented
    module = type(thing).__module__
    found = next((name for name, value in list(_attributes(module).items()) if value is thing), None)
    return NotImplemented if found is None else by_name(pickler, module, found)


def by_name(pickler: Any, module: str, name: str) -> Any:
    """How a reducer says that a thing is an attribute of a module (``name.part``: of one)."""
    pickler.modules.add(module)
    return find_attribute, (module, name)


@streams.named
def find_attribute(module: str, name: str) -> Any:
    """The attribute of a module (``Class.name``: of a class in it)."""
    return operator.attrgetter(name)(importlib.import_module(module))


# ------------------------------------------------------------------------ NaN, and texts that are marks
#: NaN, texts that are marks, and the key of the builtins in globals of what was executed, as pickle writes them
_WRITTEN = (
    b"G\x7f\xf8\0\0\0\0\0\0",
    b"G\xff\xf8\0\0\0\0\0\0",
    b"==SUPPRESS==",
    b"SUPPRESSHELP",
    b"\x8c\x07DEFAULT",
    b"\x8c\x0c__builtins__",
)
#: texts and tuples that their modules compare by identity
_PLAIN_MARKS = (("argparse", "SUPPRESS"), ("optparse", "SUPPRESS_HELP"), ("optparse", "NO_DEFAULT"))


def has_nans(stream: bytes) -> bool:
    """Tell if NaN, or a text that is a mark, may be in a pickle."""
    return any(written in stream for written in _WRITTEN)


def has_builtins(values: Mapping[str, Any]) -> bool:
    """Tell if the globals of something that was executed are among values, and the builtins in them."""
    return any(type(value) is dict and "__builtins__" in value for value in values.values())


def plain_marks() -> dict[int, str]:
    """Ids of the texts and tuples that are marks of loaded modules, and of the builtins, and their keys."""
    found = ((":".join(place), _attributes(place[0]).get(place[1])) for place in _PLAIN_MARKS)
    marks = {id(mark): key for key, mark in found if mark is not None}
    return marks | {id(vars(builtins)): "builtins:__dict__"}


def key_of_nan(nan: float) -> str | None:
    """The name of a NaN, or what it is known by in all processes to which it goes; None: there are too many."""
    found = _keys.get(id(nan))
    if found is None and len(_keys) < _MOST_NANS:
        name = name_of(nan)
        found = uuid.uuid4().hex if name is None else ":".join(name)
        _note(found, nan)
    return found


def nan_of(key: str) -> float:
    """The NaN that is known by this key here."""
    if key in _nans:
        return _nans[key]
    found = float("nan")
    module, _, name = key.partition(":")
    if name:
        with contextlib.suppress(ImportError, AttributeError):  # one of a library that is not here
            found = find_attribute(module, name)
    _note(key, found)
    return found


def _note(key: str, nan: float) -> None:
    _keys.setdefault(id(nan), key)
    _nans[key] = nan
