"""Filters of warnings, limits of the interpreter, the context of :mod:`decimal`."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from ..adapter import LibrarySettings, Values
from . import environment, log_settings


def _warning_filters(_module: Any) -> Values:
    return {repr(entry): entry for entry in reversed(warnings.filters)}


def _add_filter(_module: Any, _name: str, value: Any) -> None:
    """The latest comes first."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters[:] = [value, *(entry for entry in filters if entry != value)]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _limits(_module: Any) -> Values:
    return {"recursion limit": sys.getrecursionlimit(), "digits": sys.get_int_max_str_digits()}


def _set_limit(_module: Any, name: str, value: Any) -> None:
    sys.setrecursionlimit(value) if name == "recursion limit" else sys.set_int_max_str_digits(value)


def _decimal(decimal: Any) -> Values:
    context = decimal.getcontext()
    traps = sorted(signal.__name__ for signal, is_on in context.traps.items() if is_on)
    return {**{name: getattr(context, name) for name in _DECIMAL if name != "traps"}, "traps": traps}


_DECIMAL = {
    "prec": 28,
    "rounding": "ROUND_HALF_EVEN",
    "Emin": -999999,
    "Emax": 999999,
    "capitals": 1,
    "clamp": 0,
    "traps": ["DivisionByZero", "InvalidOperation", "Overflow"],
}


def _set_decimal(decimal: Any, name: str, value: Any) -> None:
    context = decimal.getcontext()
    if name == "traps":
        for signal in context.traps:
            context.traps[signal] = signal.__name__ in value
    else:
        setattr(context, name, value)


ALL = (
    LibrarySettings("sys", _limits, lambda _: {"recursion limit": 1000, "digits": 4300}, _set_limit, that_count=False),
    LibrarySettings(
        "os",
        environment.read,
        environment.initial,
        environment.write,
        only_set=True,
        goes_along=False,
        follow_threads=True,
    ),
    LibrarySettings("logging", log_settings.read, lambda _: {}, log_settings.write, only_set=True, that_count=False),
    LibrarySettings("decimal", _decimal, lambda _: _DECIMAL, _set_decimal),
    LibrarySettings("warnings", _warning_filters, lambda _: {}, _add_filter, that_count=False),
)
