"""Result of a cell's last expression: it goes home for ``_`` and ``Out[n]``, if it is a small value of a usual kind."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

from ...adapters.registry import adapters_of
from ...protocol.cell import LAST_OUTPUT_LIMIT_BYTES, LastOutput
from ...serialization import codec
from ...serialization.rebuild import NamespaceInfo
from ...serialization.sharing.references import Key, KnownInputs
from .changes import is_immutable
from .error_frames import bytes_at_least, nbytes_of, text_of

_PLAIN = frozenset(
    {
        "array",
        "builtins",
        "collections",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "ipaddress",
        "pathlib",
        "time",
        "types",
        "uuid",
        "zoneinfo",
    }
)
_CONTAINERS = (list, tuple, set, frozenset, dict)
#: they are known by themselves
_DEFINED = (type, types.FunctionType, types.ModuleType)
_MOST_LOOKED_AT = 200
_DEEPEST = 20


def last_output(
    value: Any, names: Mapping[str, Any], realm: NamespaceInfo, known: KnownInputs | None = None
) -> LastOutput:
    """Choose how ``value`` goes home. Plots (lists of lines) and the like would take their whole figure along.

    ``names``: what the notebook will hold after the cell; ``known``: inputs that the cell left as they were.
    """
    if is_immutable(value):
        at_home = None
    elif name := next((name for name, held in names.items() if held is value), "") or _attribute(names, value):
        return LastOutput(name=name)
    else:
        at_home = _at_home(names, known)
    if not _is_usual(value, at_home):
        return LastOutput(text=text_of(value, "left in a GPU cell; give it a name to have it here"))
    if bytes_at_least(value, LAST_OUTPUT_LIMIT_BYTES, but=partial(_is_at_home, at_home)) <= LAST_OUTPUT_LIMIT_BYTES:
        dump = codec.dump({"_": value}, realm, known=at_home)
        if not dump.failed and dump.total_bytes <= LAST_OUTPUT_LIMIT_BYTES:
            return LastOutput(
                library=_library(value), stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]
            )
        if dump.failed:
            return LastOutput(text=text_of(value, f"left in a GPU cell ({dump.failed['_']})"))
    return LastOutput(text=text_of(value, "too large for `_`; give it a name to have it here"))


def _attribute(names: Mapping[str, Any], value: Any) -> str:
    """``name.attribute`` of what holds ``value`` (``w.grad``)."""
    for name, held in names.items():
        for key, each in getattr(held, "__dict__", {}).items():
            if each is value and isinstance(key, str):
                return f"{name}.{key}"
        for adapter in adapters_of(type(held)):
            for key, each in adapter.named_parts(held).items():
                if each is value:
                    return f"{name}.{key}"
    return ""


def _at_home(names: Mapping[str, Any], known: KnownInputs | None) -> KnownInputs:
    """Values that need not travel: they are in the notebook, or will be."""
    keys: dict[int, Key] = {}
    things = [value for value in names.values() if not is_immutable(value)]
    if known is not None:  # by names here: what they hold after the cell
        keys |= {ident: key for ident, key in known.keys.items() if not isinstance(key, str)}
        things += known.things
    keys |= {id(value): place for place, value in _parts(names) if not is_immutable(value)}
    keys |= {id(value): name for name, value in names.items() if not is_immutable(value)}
    held, large = ((), ()) if known is None else (known.held, known.large)
    return KnownInputs(keys, things, held, large, with_copies=False)


def _parts(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """``name.attribute`` of the user's classes and of their objects, which are there in the notebook as well."""
    for name, held in names.items():
        if "__main__" in (getattr(held, "__module__", ""), type(held).__module__):
            for key, value in getattr(held, "__dict__", {}).items():
                if isinstance(key, str) and not isinstance(value, _DEFINED) and value is getattr(held, key, None):
                    yield f"{name}.{key}", value


def _is_at_home(at_home: KnownInputs | None, value: Any) -> bool:
    return at_home is not None and (at_home.key_of(value) is not None or at_home.memory.place_of(value) is not None)


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _is_usual(value: Any, at_home: KnownInputs | None, depth: int = 0) -> bool:
    """Plain values, those of libraries, arrays of other libraries, and the user's objects of these."""
    kind = type(value)
    if at_home is not None and at_home.key_of(value) is not None:
        return True
    if depth > _DEEPEST or any(base.__name__ == "Module" for base in kind.__mro__):
        return False
    parts: Iterable[Any] = ()
    if issubclass(kind, _CONTAINERS):
        parts = chain(value, value.values()) if issubclass(kind, dict) else value
    if kind.__module__ == "__main__" or kind is types.SimpleNamespace:
        parts = chain(parts, getattr(value, "__dict__", {}).values())
    elif not (_is_value(kind) or hasattr(kind, "_fields") or _is_small_array(value)):
        return False
    return all(_is_usual(part, at_home, depth + 1) for part in islice(parts, _MOST_LOOKED_AT))


def _is_value(kind: type) -> bool:
    if kind.__module__.partition(".")[0] in _PLAIN:
        return True
    return kind.__module__ != "__main__" and any(adapter.gives_values for adapter in adapters_of(kind))


def _is_small_array(value: Any) -> bool:
    size = nbytes_of(value)
    return isinstance(size, int) and size <= LAST_OUTPUT_LIMIT_BYTES
