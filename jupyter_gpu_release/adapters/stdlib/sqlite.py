"""Calls that ``sqlite3`` remembers: ``register_adapter``, ``register_converter``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

from ... import streams


class _Registering(type):
    """Attributes of its class are calls that were made."""

    def __setattr__(cls, _name: str, call: tuple[str, Any, Any]) -> None:
        function, *arguments = call
        getattr(importlib.import_module("sqlite3"), function)(*arguments)


class ToldSqlite(metaclass=_Registering):
    """Calls of ``sqlite3``, by words for each."""

    __module__ = streams.__name__


def told() -> Iterator[tuple[type, str, Any]]:
    """Those that were made since the module was imported."""
    sqlite = sys.modules.get("sqlite3")
    for (kind, _protocol), adapt in getattr(sqlite, "adapters", {}).items():
        if not _is_its_own(adapt):
            yield ToldSqlite, f"adapter of sqlite3 for {kind.__name__}", ("register_adapter", kind, adapt)
    for name, convert in getattr(sqlite, "converters", {}).items():
        if not _is_its_own(convert):
            yield ToldSqlite, f"converter of sqlite3 for {name}", ("register_converter", name, convert)


def _is_its_own(function: Any) -> bool:
    """Tell if every kernel has it: the history of IPython registers one."""
    return str(getattr(function, "__module__", "")).startswith(("sqlite3", "IPython"))
