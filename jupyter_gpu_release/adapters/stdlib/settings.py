"""Settings of Python itself: warnings, limits, decimal, csv, locale, time zone, timeouts, umask, the collector."""

from __future__ import annotations

import functools
import gc
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from ..adapter import LibrarySettings, Staying, Values
from . import began, environment, log_settings, thread_locals


def _warning_filters(_module: Any) -> Values:
    return {repr(entry): entry for entry in reversed(warnings.filters)}


def _add_filter(_module: Any, _name: str, value: Any) -> None:
    """The latest comes first."""
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters[:] = [value, *(entry for entry in filters if entry != value)]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _limits(_module: Any) -> Values:
    return {name: read() for name, (read, _) in _LIMITS.items()}


def _set_limit(_module: Any, name: str, value: Any) -> None:
    _LIMITS[name][1](value)


_LIMITS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "digits": (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    "switch interval": (sys.getswitchinterval, sys.setswitchinterval),
}
_USUAL_LIMITS = {"recursion limit": 1000, "digits": 4300, "switch interval": 0.005}


def _decimal(decimal: Any) -> Values:
    contexts = {"": decimal.getcontext(), **{f"{name}.": getattr(decimal, name) for name in _USUAL_TEMPLATES}}
    return {f"{prefix}{name}": value for prefix, each in contexts.items() for name, value in _context(each).items()}


def _context(context: Any) -> Values:
    signals = {
        name: sorted(signal.__name__ for signal, is_on in getattr(context, name).items() if is_on) for name in _SIGNALS
    }
    return {**{name: getattr(context, name) for name in _DECIMAL if name not in _SIGNALS}, **signals}


_SIGNALS = ("traps", "flags")
_DECIMAL = {
    "prec": 28,
    "rounding": "ROUND_HALF_EVEN",
    "Emin": -999999,
    "Emax": 999999,
    "capitals": 1,
    "clamp": 0,
    "traps": ["DivisionByZero", "InvalidOperation", "Overflow"],
    "flags": [],
}
#: contexts from which others are made
_USUAL_TEMPLATES: dict[str, Values] = {
    "DefaultContext": _DECIMAL,
    "ExtendedContext": {**_DECIMAL, "prec": 9, "traps": []},
    "BasicContext": {
        **_DECIMAL,
        "prec": 9,
        "rounding": "ROUND_HALF_UP",
        "traps": ["Clamped", "DivisionByZero", "InvalidOperation", "Overflow", "Underflow"],
    },
}
_USUAL_DECIMAL = _DECIMAL | {
    f"{prefix}.{name}": value for prefix, values in _USUAL_TEMPLATES.items() for name, value in values.items()
}


def _set_decimal(decimal: Any, name: str, value: Any) -> None:
    template, _, name = name.rpartition(".")
    context = getattr(decimal, template) if template else decimal.getcontext()
    if name in _SIGNALS:
        signals = getattr(context, name)
        for signal in signals:
            signals[signal] = signal.__name__ in value
    else:
        setattr(context, name, value)


# ------------------------------------------------------------------------------ csv, locale, time zone
_DIALECT = "dialect "
_DIALECT_PARTS = (
    "delimiter",
    "doublequote",
    "escapechar",
    "lineterminator",
    "quotechar",
    "quoting",
    "skipinitialspace",
    "strict",
)
_USUAL_CSV: Values = {
    "field size limit": 131072,
    f"{_DIALECT}excel": [",", True, None, "\r\n", '"', 0, False, False],
    f"{_DIALECT}excel-tab": ["\t", True, None, "\r\n", '"', 0, False, False],
    f"{_DIALECT}unix": [",", True, None, "\n", '"', 1, False, False],
}


def _csv(csv: Any) -> Values:
    dialects = {name: csv.get_dialect(name) for name in csv.list_dialects()}
    found = {f"{_DIALECT}{name}": [getattr(one, part) for part in _DIALECT_PARTS] for name, one in dialects.items()}
    return {"field size limit": csv.field_size_limit(), **found}


def _set_csv(csv: Any, name: str, value: Any) -> None:
    if name.startswith(_DIALECT):
        csv.register_dialect(name.removeprefix(_DIALECT), **dict(zip(_DIALECT_PARTS, value, strict=True)))
    else:
        csv.field_size_limit(value)


def _locale(locale: Any) -> Values:
    return {"locale": locale.setlocale(locale.LC_ALL)}


def _usual_locale(locale: Any) -> Values:
    """Python itself sets ``LC_CTYPE`` alone when it starts."""
    values = _locale(locale)
    _ctype, *others = values["locale"].split(";")
    return values if others and all(other.endswith("=C") for other in others) else {}


def _zone(time: Any) -> Values:
    return {"zone": [os.environ.get("TZ"), *time.tzname, time.timezone]}


def _usual_zone(time: Any) -> Values:
    """Without a ``TZ`` of one's own the zone is the machine's."""
    return {} if environment.is_set_since_start("TZ") else _zone(time)


def _set_zone(time: Any, _name: str, value: Any) -> None:
    """A variable that does not hold yet (no ``tzset``) is seen by the zone, which is the same as before."""
    variable, *zone = value
    if [*time.tzname, time.timezone] != zone:
        environment.write(None, "TZ", variable)
        time.tzset()


# ------------------------------------------------------------------------------------------------ sys.path
_ENTRY = "sys.path entry "


@functools.cache
def _paths_of_run(run: str | None) -> tuple[str, ...]:
    """Its folder, which is removed one day. The filesystem is asked once, before there are GPUs to wait with."""
    return (run, os.path.realpath(run)) if run else ()


def _path_entries(_module: Any) -> Values:
    """Each with its place."""
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    runs = _paths_of_run(os.environ.get("GPU_RUN_DIR"))
    return {
        f"{_ENTRY}{entry}": Staying(entry)
        if entry.startswith(runs)
        else environment.PathPlace(before, entry == entries[-1])
        for before, entry in zip([None, *entries], entries, strict=False)
    }


def _set_entry(_module: Any, name: str, place: environment.PathPlace | None) -> None:
    """``place`` is None of one that was removed."""
    entry = name.removeprefix(_ENTRY)
    if place is None:
        sys.path[:] = [each for each in sys.path if each != entry]
    elif entry not in sys.path:
        before = place.before
        number = len(sys.path) if place.is_last or before not in sys.path else sys.path.index(before) + 1
        sys.path.insert(0 if before is None else number, entry)


# --------------------------------------------------------------------------------- umask, garbage collector
def _set_umask(_module: Any, _name: str, value: str) -> None:
    os.umask(int(value, 8))


def _collector(_module: Any) -> Values:
    return {"is on": gc.isenabled(), "thresholds": list(gc.get_threshold())}


def _set_collector(_module: Any, name: str, value: Any) -> None:
    if name == "thresholds":
        gc.set_threshold(*value)
    else:
        (gc.enable if value else gc.disable)()


def _stack_size(threading: Any) -> Values:
    size = threading.stack_size()
    if size:
        threading.stack_size(size)  # asking has set it to the usual one
    return {"stack size": size}


#: functions that set them, by whose names they would be taken for what stays in its process
CALLS = (
    "addHandler",
    "addLevelName",
    "addsitedir",
    "environ",
    "environ.setdefault",
    "logging.captureWarnings",
    "logging.disable",
    "parallel_config",
    "register_dialect",
    "setLevel",
    "set_int_max_str_digits",
    "setcontext",
    "setdefaulttimeout",
    "set_verbosity",
    *(f"set_verbosity_{level}" for level in ("debug", "error", "info", "warning")),
    "setfirstweekday",
    "setlocale",
    "setrecursionlimit",
    "setswitchinterval",
)
ALL = (
    LibrarySettings("sys", _limits, lambda _: _USUAL_LIMITS, _set_limit, that_count=False),
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
    LibrarySettings("decimal", _decimal, lambda _: _USUAL_DECIMAL, _set_decimal),
    LibrarySettings("csv", _csv, lambda _: _USUAL_CSV, _set_csv),
    LibrarySettings("locale", _locale, _usual_locale, lambda locale, _, value: locale.setlocale(locale.LC_ALL, value)),
    LibrarySettings("time", _zone, _usual_zone, _set_zone),
    LibrarySettings(
        "socket",
        lambda socket: {"timeout": socket.getdefaulttimeout()},
        lambda _: {"timeout": None},
        lambda socket, _, value: socket.setdefaulttimeout(value),
        that_count=False,
    ),
    LibrarySettings("posix", lambda _: began.umask(), lambda _: began.UMASK, _set_umask, that_count=False),
    LibrarySettings(
        "calendar",
        lambda calendar: {"first weekday": int(calendar.firstweekday())},
        lambda _: {"first weekday": 0},
        lambda calendar, _, value: calendar.setfirstweekday(value),
    ),
    LibrarySettings(
        "threading",
        _stack_size,
        lambda _: {"stack size": 0},
        lambda threading, _, value: threading.stack_size(value),
        that_count=False,
    ),
    LibrarySettings("_thread", thread_locals.read, thread_locals.usual, thread_locals.write),
    LibrarySettings("site", _path_entries, lambda _: {}, _set_entry, only_set=True, goes_along=False, that_count=False),
    LibrarySettings("gc", _collector, lambda _: began.COLLECTOR, _set_collector, that_count=False),
    LibrarySettings("warnings", _warning_filters, lambda _: {}, _add_filter, that_count=False),
)
