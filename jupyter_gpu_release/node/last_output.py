"""What a cell's last expression was: it goes home for ``_`` and ``Out[n]``, if it is a small value of a usual kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any

from ..core.last_output import LIMIT_BYTES, LastOutput
from ..storage import codec
from ..storage.rebuild import Realm
from ..storage.references import Key, KnownInputs
from .failed_frames import bytes_at_least, text_of
from .fingerprint import is_immutable

_PLAIN = frozenset({"builtins", "numpy", "pandas", "torch", "datetime", "decimal", "fractions", "collections"})
_CONTAINERS = (list, tuple, set, frozenset, dict)
_MOST_LOOKED_AT = 200


def last_output(value: Any, names: Mapping[str, Any], realm: Realm, known: KnownInputs | None = None) -> LastOutput:
    """How ``value`` goes home. Plots (lists of lines) and the like would take their whole figure along.

    ``names``: what the notebook will hold after the cell; ``known``: inputs that the cell left as they were.
    """
    if is_immutable(value):
        at_home = None
    elif name := next((name for name, held in names.items() if held is value), ""):
        return LastOutput(name=name)
    else:
        at_home = _at_home(names, known)
    if not _is_usual(value, at_home):
        return LastOutput(text=text_of(value, "left in a GPU cell; give it a name to have it here"))
    if bytes_at_least(value, LIMIT_BYTES, but=partial(_is_at_home, at_home)) <= LIMIT_BYTES:
        dump = codec.dump({"_": value}, realm, known=at_home)
        if not dump.failed and dump.total_bytes <= LIMIT_BYTES:
            return LastOutput(
                library=_library(value), stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers]
            )
    return LastOutput(text=text_of(value, "too large for `_`; give it a name to have it here"))


def _at_home(names: Mapping[str, Any], known: KnownInputs | None) -> KnownInputs:
    """What need not travel: it is in the notebook, or will be."""
    keys: dict[int, Key] = {}
    things = [value for value in names.values() if not is_immutable(value)]
    if known is not None:  # by names here: what they hold after the cell
        keys |= {ident: key for ident, key in known.keys.items() if not isinstance(key, str)}
        things += known.things
    keys |= {id(value): name for name, value in names.items() if not is_immutable(value)}
    held, large = ((), ()) if known is None else (known.held, known.large)
    return KnownInputs(keys, things, held, large, with_copies=False)


def _is_at_home(at_home: KnownInputs | None, value: Any) -> bool:
    return at_home is not None and (at_home.key_of(value) is not None or at_home.memory.find(value) is not None)


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _is_usual(value: Any, at_home: KnownInputs | None) -> bool:
    kind = type(value)
    if at_home is not None and at_home.key_of(value) is not None:
        return True
    if issubclass(kind, _CONTAINERS):
        parts: Iterable[Any] = chain(value, value.values()) if issubclass(kind, dict) else value
        return kind.__module__ in _PLAIN and all(_is_usual(part, at_home) for part in islice(parts, _MOST_LOOKED_AT))
    return _library(value) in _PLAIN and not any(base.__name__ == "Module" for base in kind.__mro__)
