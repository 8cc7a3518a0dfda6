"""A call as lists of runs show it: ``trial({'rate': 0.1}, seed=3)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ..host.secrets import looks_secret

_LONGEST_TITLE, _LONGEST_TEXT, _MOST_ITEMS, _DEEPEST = 80, 24, 6, 2
_HIDDEN = "…"


def call_title(function: str, positional: Iterable[tuple[str, Any]], keywords: Mapping[str, Any]) -> str:
    """The call as it is written; ``positional``: each value with its parameter's name, which stands for large ones."""
    given = [_words(name, value) for name, value in positional]
    given += [f"{name}={_words(name, value)}" for name, value in keywords.items()]
    title = f"{function}({', '.join(given)})"
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"


def _words(name: str, value: Any, depth: int = 0) -> str:
    """Plain values, and small ones made of them; no other's own ``repr``, which may be long and slow."""
    if looks_secret(name, value):
        return _HIDDEN
    if value is None or isinstance(value, bool):
        return str(value)
    if type(value) is int and value.bit_length() <= 64:
        return str(value)
    if type(value) is float:
        return f"{value:.6g}"
    if type(value) is str:
        return repr(value if len(value) <= _LONGEST_TEXT else f"{value[: _LONGEST_TEXT - 1]}…")
    return name if depth == _DEEPEST else _parts(name, value, depth + 1)


def _parts(name: str, value: Any, depth: int) -> str:
    if type(value) is dict:
        each = [f"{key!r}: {_words(key, part, depth)}" for key, part in _first(value.items()) if type(key) is str]
        return f"{{{_joined(each, len(value))}}}" if each or not value else name
    if type(value) in (list, tuple):
        each = [_words(name, part, depth) for part in _first(value)]
        return f"[{_joined(each, len(value))}]" if type(value) is list else f"({_joined(each, len(value))})"
    if is_dataclass(value) and not isinstance(value, type):
        each = [
            f"{field.name}={_words(field.name, getattr(value, field.name), depth)}" for field in _first(fields(value))
        ]
        return f"{type(value).__name__}({_joined(each, len(fields(value)))})"
    return name


def _first(items: Iterable[Any]) -> list[Any]:
    return [item for _number, item in zip(range(_MOST_ITEMS), items, strict=False)]


def _joined(each: list[str], count: int) -> str:
    return ", ".join([*each, *([_HIDDEN] if count > len(each) else [])])
