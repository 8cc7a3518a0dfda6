"""Which of many names hold plain small values, that pickle writes by itself and that cannot fail.

Asked of ``marshal``, which takes nothing but numbers, texts and containers of them, in C: 100 values in 10 µs. Asking
type by type in Python costs ten times what pickling them does.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any

#: fewer names are written one by one: a few microseconds each
_FEWEST = 100
_LONGEST = 1000
_LARGEST_BYTES = 64 << 10
#: sizes of names in a group of less than this for each are not told apart
_SMALL_BYTES = 64
_ATOMS = frozenset((int, float, bool, type(None), complex))
_SIZED = frozenset((str, bytes, list, tuple, set, frozenset, dict))


def plain_values(values: Mapping[str, Any]) -> dict[str, int]:
    """Names of plain values with about their bytes; none where it is not worth it."""
    if len(values) < _FEWEST:
        return {}
    names = [
        name
        for name, value in values.items()
        if (kind := type(value)) in _ATOMS or (kind in _SIZED and len(value) <= _LONGEST)
    ]
    found: dict[str, int] = {}
    for start in range(0, len(names), _FEWEST):
        found |= _group(names[start : start + _FEWEST], values)
    return found if len(found) >= _FEWEST else {}


def _group(names: list[str], values: Mapping[str, Any]) -> dict[str, int]:
    each = _plain_bytes([values[name] for name in names]) // len(names)
    if 0 < each <= _SMALL_BYTES:
        return dict.fromkeys(names, each)
    sizes = {name: _plain_bytes(values[name]) for name in names}
    return {name: size for name, size in sizes.items() if 0 < size <= _LARGEST_BYTES}


def _plain_bytes(value: Any) -> int:
    try:
        return len(marshal.dumps(value))
    except ValueError:
        return 0
