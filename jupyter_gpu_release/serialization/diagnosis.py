"""Search for the part inside a value that cannot be pickled, and for the reason."""

from __future__ import annotations

import io
import time
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from .pickler import GraphPickler, is_refused
from .rebuild import NamespaceInfo

_DEEPEST = 12
_LONGEST_S = 1.0
_WIDEST = 2000
_LONGEST_PATH = 60


class UnpicklablePart(NamedTuple):
    """``path`` as Python would write it (``cfg['lock']``), ``reason`` in the words of pickle."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"`{self.path}`: {self.reason}"


def find_trouble(
    name: str, value: Any, realm: NamespaceInfo, error: Exception | None = None, *, longest_s: float = _LONGEST_S
) -> UnpicklablePart:
    """The innermost part of ``value`` that fails; searches for at most ``longest_s`` seconds."""
    trouble = _Search(realm, longest_s).find(name, value, error)
    if len(trouble.path) > _LONGEST_PATH:  # deep inside of a library's object: of no use to the reader
        return UnpicklablePart(name, trouble.reason)
    return trouble


class _Search:
    def __init__(self, realm: NamespaceInfo, longest_s: float) -> None:
        self._realm = realm
        self._deadline = time.monotonic() + longest_s
        self._seen: dict[int, Any] = {}

    def find(self, path: str, value: Any, error: Exception | None, depth: int = 0) -> UnpicklablePart:
        error = error or self._fails(value)
        self._seen[id(value)] = value
        if depth < _DEEPEST and type(value) not in weakref.ProxyTypes and not is_refused(value):
            for part_path, part in _parts(path, value):
                if time.monotonic() > self._deadline:
                    break
                if id(part) in self._seen:
                    continue
                part_error = self._fails(part)
                if part_error is not None:
                    return self.find(part_path, part, part_error, depth + 1)
        return UnpicklablePart(path, _reason(error))

    def _fails(self, value: Any) -> Exception | None:
        pickler = GraphPickler(io.BytesIO(), self._realm, [])
        try:
            pickler.dump(value)
        except Exception as error:  # noqa: BLE001 - reducers are foreign code
            return error
        return None


def _reason(error: Exception | None) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, RecursionError) or "recursion" in text:
        return "it is nested too deeply"
    return text.splitlines()[0][:200]


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in list(value.items())[:_WIDEST]:
            yield f"{path}[{_key(key)}]", part
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value[:_WIDEST]):
            yield f"{path}[{index}]", part
    elif isinstance(value, (set, frozenset)):
        for part in list(value)[:_WIDEST]:
            yield f"an element of {path}", part
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(path, value)
    elif isinstance(value, types.MethodType):
        yield f"{path}.__self__", value.__self__
    if not isinstance(value, (type, types.ModuleType)):
        yield from _attributes(path, value)


def _key(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 40 else text[:37] + "..."


def _function_parts(path: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"{path} (its enclosed {name})", cell.cell_contents
        except ValueError:
            continue
    for default in function.__defaults__ or ():
        yield f"{path} (a default)", default


def _attributes(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        for name, part in list(attributes.items())[:_WIDEST]:
            yield f"{path}.{name}", part
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(name, str) and hasattr(value, name):
                yield f"{path}.{name}", getattr(value, name)
    if hasattr(value, "func") and hasattr(value, "args"):  # functools.partial
        yield f"{path}.func", value.func
        yield f"{path}.args", value.args
