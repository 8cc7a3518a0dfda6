"""Settings that libraries keep in thread-local objects and context variables of their modules.

``joblib.parallel_config(…)`` and ``sympy.evaluate`` set such ones. A new thread, and an empty context, show what they
are unless somebody sets them. Libraries that have an adapter say themselves what their settings are.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ... import streams
from .. import singletons
from ..adapter import NotLoadedError, Values
from ..registry import adapter_of
from ..users_code import is_file_of_the_user

_Holder = threading.local | contextvars.ContextVar[Any]
_ABSENT = object()
_ATOMS = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, tuple, set, frozenset)
#: parts of parts that are looked at
_DEPTH = 3

_looked_at: set[str] = set()
#: id → module and name there, and the object, which keeps its id
_holders: dict[int, tuple[tuple[str, str], _Holder]] = {}


def find_holders() -> None:
    """Look at the modules that were loaded since. A fork server does so once for all that it forks."""
    kinds: dict[type, bool] = {}
    for name in [name for name in list(sys.modules) if name not in _looked_at]:
        module = sys.modules.get(name)
        if type(module) is not types.ModuleType or not _is_loaded(module):
            continue
        _looked_at.add(name)
        if not _is_of_other_library(name.partition(".")[0]):
            continue
        for attribute, value in list(vars(module).items()):
            kind = type(value)
            if kind not in kinds:
                kinds[kind] = issubclass(kind, (threading.local, contextvars.ContextVar))
            if kinds[kind] and not is_file_of_the_user(getattr(module, "__file__", None) or "<frozen"):
                _holders.setdefault(id(value), ((name, attribute), value))


def _is_loaded(module: types.ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _is_of_other_library(top: str) -> bool:
    return top not in sys.stdlib_module_names and top != "jupyter_gpu_release" and adapter_of(top) is None


def read(_module: Any) -> Values:
    """The settings of this thread and context that are plain all through; others are caches, or of the process."""
    find_holders()
    found: Values = {}
    for (module, attribute), holder in _holders.values():
        for name, value in _contents(holder):
            if _is_plain(value, module.partition(".")[0]):
                found[f"{module}:{attribute}.{name}"] = _with_marks(value, module)
    return found


def usual(module: Any) -> Values:
    """Values that a thread finds there which nobody has told anything."""
    found: Values = {}
    thread = threading.Thread(target=lambda: found.update(contextvars.Context().run(read, module)))
    thread.start()
    thread.join()
    return found


def write(_module: Any, name: str, value: Any) -> None:
    """Set one of them; raises NotLoadedError until its library is here."""
    module, _, path = name.partition(":")
    attribute, _, own = path.partition(".")
    if module not in sys.modules:
        raise NotLoadedError(module)
    holder = vars(sys.modules[module])[attribute]
    if isinstance(holder, contextvars.ContextVar):
        holder.set(_without_marks(value))
    else:
        setattr(holder, own, _without_marks(value))


def _contents(holder: _Holder) -> Iterator[tuple[str, Any]]:
    if isinstance(holder, contextvars.ContextVar):
        value = contextvars.copy_context().get(holder, _ABSENT)
        values = {} if value is _ABSENT else {"": value}
    else:
        values = vars(holder)
    yield from list(values.items())


@streams.named
@dataclass(frozen=True)
class Mark:
    """Stands for an object that is a default in a dict of a module: only its identity counts."""

    module: str
    attribute: str
    key: str


def _with_marks(value: Any, module: str) -> Any:
    """A copy, in which marks stand for such objects."""
    if type(value) in (list, set):
        return type(value)(value)
    if type(value) is not dict:
        return value
    tables = [(name, table) for name, table in list(vars(sys.modules[module]).items()) if type(table) is dict]
    marks = {id(each): Mark(module, name, key) for name, table in tables for key, each in list(table.items())}
    return {key: each if type(each) in _ATOMS else marks.get(id(each), each) for key, each in value.items()}


def _without_marks(value: Any) -> Any:
    if type(value) is not dict:
        return value
    return {
        key: vars(sys.modules[each.module])[each.attribute][each.key] if type(each) is Mark else each
        for key, each in value.items()
    }


def _is_plain(value: Any, top: str, depth: int = _DEPTH) -> bool:
    """Tell if it consists of numbers, texts, containers and plain objects of the library ``top``."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if not depth:
        return False
    if kind in _CONTAINERS:
        return all(_is_plain(part, top, depth - 1) for part in value)
    if kind is dict:
        return all(_is_plain(part, top, depth - 1) for part in (*value, *value.values()))
    if kind.__module__.partition(".")[0] != top or not hasattr(value, "__dict__"):
        return False
    return _is_plain(vars(value), top, depth)


def reduce_thread_local(pickler: Any, holder: threading.local) -> Any:
    """One that a library's module has: by its name there."""
    find_holders()
    found = _holders.get(id(holder))
    return NotImplemented if found is None else singletons.by_name(pickler, *found[0])
