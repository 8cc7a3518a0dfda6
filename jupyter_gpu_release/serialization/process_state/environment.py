"""Environment variables of this process: what it was started with, and what was set since."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...host.environment import SET_BY_IMPORTS, OwnVariables, may_travel, own_variables, stays_here
from .log_settings import Staying

_VARIABLE = "variable "


def _at_start() -> dict[str, str]:
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:  # not on Linux
        return dict(os.environ)
    pairs = [os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry]
    return {name: value for name, _, value in pairs}


_INITIAL = _at_start()


def set_since_start(*, but: Collection[str] = frozenset()) -> OwnVariables:
    """Variables that this process has set itself, except those in ``but``."""
    return own_variables(os.environ, _INITIAL, but=but)


def initial(_module: Any) -> dict[str, Any]:
    """The variables that it began with and that may travel, as :func:`read` has them."""
    return {f"{_VARIABLE}{name}": value for name, value in _INITIAL.items() if may_travel(name)}


def read(_module: Any) -> dict[str, Any]:
    """The variables as they are now."""
    return {
        f"{_VARIABLE}{name}": Staying(value) if stays_here(name, value) else value
        for name, value in os.environ.items()
        if may_travel(name)
    }


def write(_module: Any, name: str, value: str | None) -> None:
    """Set one of them; None deletes it."""
    variable = name.removeprefix(_VARIABLE)
    if value is None:
        os.environ.pop(variable, None)
    elif may_travel(variable):
        os.environ[variable] = value


def may_change_results(name: str) -> bool:
    """Tell if a variable can change what a cell computes."""
    return name.removeprefix(_VARIABLE) not in SET_BY_IMPORTS
