"""Sizes and durations: parse and print (``512MiB``, ``30s``)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from .errors import OptionError

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)
_DURATION = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d))", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def round_number(number: float, digits: int | None = None) -> Any:
    """As ``round``, in whose place a notebook may put another (``builtins.round = …``); we work in its process."""
    return number.__round__() if digits is None else number.__round__(digits)


def parse_bytes(text: str, *, option: str) -> int:
    """Read a size such as ``512MiB``, ``40GiB``, ``40G`` (powers of 1024) or ``40GB`` (powers of 1000)."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise OptionError(f"{option} {text}: not a size", hint="write it like 512MiB or 40GiB")
    unit = match[2].lower()
    base = 1000 if unit.endswith("b") and "i" not in unit and len(unit) == 2 else 1024
    power = "kmgt".find(unit[0]) + 1 if unit and unit[0] in "kmgt" else 0
    value = int(float(match[1]) * base**power)
    if value <= 0:
        raise OptionError(f"{option} {text}: must be more than 0", hint="write it like 512MiB or 40GiB")
    return value


def parse_seconds(text: str, *, option: str) -> float:
    """Read a duration such as ``30s``, ``10m``, ``2h``, ``1h30m``; a bare number is seconds."""
    stripped = text.replace(" ", "")
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", stripped):
        return float(stripped)
    parts = _DURATION.findall(stripped)
    if not parts or "".join(n + u for n, u in parts) != stripped:
        raise OptionError(f"{option} {text}: not a duration", hint="write it like 30s, 10m or 2h")
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)


_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(count: float) -> str:
    """``1536 → '1.5 KiB'``. The sidebar has the same rounding (``labextension/src/format.ts``), in all of these."""
    number, unit = _in_unit(abs(count))
    return f"{'-' if count < 0 else ''}{_short(number)} {unit}"


def format_part(used: float, total: float) -> str:
    """``(12.3 * GiB, 80 * GiB) → '12.3 of 80 GiB'``: both in the unit of the whole."""
    number, unit = _in_unit(abs(total))
    return f"{_short(used / 1024 ** _BYTES.index(unit))} of {_short(number)} {unit}"


def format_percent(share: float) -> str:
    """``0.4 → '40 %'``."""
    return f"{_rounded(share * 100)} %"


def sum_gpus(gpus: Iterable[float]) -> float:
    """GPUs and parts of GPUs in all: ``0.1, 0.2 → 0.3``, ``0.5, 0.5 → 1``."""
    total = round_number(sum(gpus), 3)
    return int(total) if total == int(total) else total


def format_count(count: float, what: str) -> str:
    """``(1, 'run') → '1 run'``, ``(2, 'run') → '2 runs'``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    """``0.0123 → '12 ms'``, ``75 → '1 min 15 s'``, ``97_200 → '1 d 3 h'``."""
    if _rounded(seconds * 1000) < 1000:
        return f"{_rounded(max(0.0, seconds) * 1000)} ms"
    if _rounded(seconds * 10) < 600:
        return f"{_short(seconds)} s"
    minutes, rest = divmod(_rounded(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def format_gpu_hours(seconds: float) -> str:
    """GPU-seconds as GPU-hours: ``0 h``, ``< 0.01 h``, ``0.03 h``, ``2.3 h``, ``20 h``."""
    if seconds > 0 and _rounded(seconds / 360) == 0:
        hundredths = _rounded(seconds / 36)
        return f"0.{hundredths:02d} h" if hundredths else "< 0.01 h"
    return f"{_short(seconds / 3600) if seconds < 36_000 else _rounded(seconds / 3600)} h"


def _in_unit(count: float) -> tuple[float, str]:
    value = count
    for unit in _BYTES[:-1]:
        if _rounded(value) < 1024:
            return (float(_rounded(value)) if unit == "B" else value), unit
        value /= 1024
    return value, _BYTES[-1]


def _short(value: float) -> str:
    """One decimal below 100, none where it would be 0."""
    if value >= 100:
        return str(_rounded(value))
    tenths = _rounded(value * 10)
    return f"{tenths // 10}.{tenths % 10}" if tenths % 10 else str(tenths // 10)


def _rounded(value: float) -> int:
    """Halves go up, as in a browser."""
    return math.floor(value + 0.5)
