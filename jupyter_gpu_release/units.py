"""Sizes and durations: parse and print (``512MiB``, ``30s``)."""

from __future__ import annotations

import re

from .errors import OptionError

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)
_DURATION = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d))", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


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


def format_bytes(count: float) -> str:
    """``1536 → '1.5 KiB'``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_count(count: int, what: str) -> str:
    """``(1, 'run') → '1 run'``, ``(2, 'run') → '2 runs'``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    """``0.0123 → '12 ms'``, ``75 → '1 min 15 s'``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
