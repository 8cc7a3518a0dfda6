"""What a cell's last expression was: it goes home for ``_`` and ``Out[n]``, if it is a small value of a usual kind."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

from ..core.last_output import LIMIT_BYTES, LastOutput
from ..core.machinery import is_last_output
from ..storage import codec
from ..storage.rebuild import Realm
from .failed_frames import bytes_at_least, text_of
from .fingerprint import is_immutable

_PLAIN = frozenset({"builtins", "numpy", "pandas", "torch", "datetime", "decimal", "fractions", "collections"})
_CONTAINERS = (list, tuple, set, frozenset, dict)
_MOST_LOOKED_AT = 200


def last_output(value: Any, namespace: dict[str, Any], realm: Realm) -> LastOutput:
    """How ``value`` goes home. Plots (lists of lines) and the like would take their whole figure along."""
    if not is_immutable(value):
        names = (name for name, held in namespace.items() if held is value and not is_last_output(name))
        if name := next(names, ""):
            return LastOutput(name=name)
    if not _is_usual(value):
        return LastOutput(text=text_of(value, "shown by a GPU cell; give it a name to have it here"))
    if bytes_at_least(value, LIMIT_BYTES) <= LIMIT_BYTES:
        dump = codec.dump({"_": value}, realm)
        if not dump.failed and dump.total_bytes <= LIMIT_BYTES:
            return LastOutput(
                library=_library(value), stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]
            )
    return LastOutput(text=text_of(value, "too large for `_`; give it a name to have it here"))


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _is_usual(value: Any) -> bool:
    kind = type(value)
    if issubclass(kind, _CONTAINERS):
        parts: Iterable[Any] = chain(value, value.values()) if issubclass(kind, dict) else value
        return kind.__module__ in _PLAIN and all(_is_usual(part) for part in islice(parts, _MOST_LOOKED_AT))
    return _library(value) in _PLAIN and not any(base.__name__ == "Module" for base in kind.__mro__)
