"""Plain values for messages: users' own string classes, numpy scalars and odd file names have no place in msgpack."""

from __future__ import annotations

from typing import Any

import msgspec

from ...protocol.runs import Outcome

_DEEPEST = 32
_LARGEST_INT = 1 << 63


def plain_text(text: str) -> str:
    """``text`` as an ordinary string that UTF-8 can carry."""
    return str.encode(text, "utf-8", "backslashreplace").decode()


def plain_value(value: Any, depth: int = 0) -> Any:
    """``value`` in the types that JSON and msgpack know; what has no such form becomes its text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        return int(value) if -_LARGEST_INT <= value < _LARGEST_INT else float(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if depth < _DEEPEST and isinstance(value, dict):
        return {plain_text(str(key)): plain_value(item, depth + 1) for key, item in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item, depth + 1) for item in value]
    scalar = getattr(value, "item", None)  # of arrays and tensors
    if callable(scalar) and getattr(value, "ndim", None) == 0:
        return plain_value(scalar(), depth + 1)
    return plain_text(str(value))


def plain_outcome(outcome: Outcome) -> Outcome:
    """``outcome`` with every text of the user's as an ordinary string."""
    change = msgspec.structs.replace
    error = outcome.error
    if error is not None:
        lines = [plain_text(line) for line in error.traceback]
        error = change(error, ename=plain_text(error.ename), evalue=plain_text(error.evalue), traceback=lines)
    return change(
        outcome,
        error=error,
        notes=[plain_text(note) for note in outcome.notes],
        results=[change(value, name=plain_text(value.name), type=plain_text(value.type)) for value in outcome.results],
        files=[change(file, path=plain_text(file.path)) for file in outcome.files],
        untouched_reason=plain_text(outcome.untouched_reason),
    )
