"""Many names with plain small values (numbers, texts, containers of them): pickled together, not one by one.

Pickle itself says whether a value is plain: while they are written, whatever it has to ask a reducer for is not.
Looking beforehand (type by type, or with ``marshal``) costs as much as the pickling. Where they turn out not to be
plain or not small, ``marshal`` finds out which of the names are: it takes nothing but plain values, in C.
"""

from __future__ import annotations

import io
import marshal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: fewer names are written one by one: a few microseconds each
_FEWEST = 100
_LONGEST = 1000
_LARGEST_BYTES = 64 << 10
#: the sizes of names are not told apart where they have less than this at the average, and this in all
_SMALL_BYTES = 64
_LARGEST_TOGETHER_BYTES = 1 << 20
_ATOMS = frozenset((int, float, bool, type(None), complex))
_SIZED = frozenset((str, bytes, list, tuple, set, frozenset, dict))
_PLAIN = _ATOMS | _SIZED


class GraphStream(io.BytesIO):
    """Stream for a graph's pickles. ``end``: a position behind which nothing may be written now (pickle writes a frame
    of 64 KiB at a time, so what is large is noticed before it has been pickled).
    """

    end: int | None = None

    def write(self, data: Any) -> int:
        """Append; raises :class:`NotPlainError` behind ``end``."""
        if self.end is not None and self.tell() > self.end:
            raise NotPlainError
        return super().write(data)


class NotPlainError(Exception):
    """Something among values that were taken for plain needs a reducer, or is large: start again."""


@dataclass(frozen=True)
class PlainValues:
    """Names to write together. ``sizes``: about their bytes, where they have been looked at (else None)."""

    values: Mapping[str, Any] = field(default_factory=dict)
    sizes: dict[str, int] | None = None

    def write(self, pickler: Any, stream: GraphStream, sizes: dict[str, int]) -> None:
        """Append them to the stream, and about the bytes of each to ``sizes``.

        Raises :class:`NotPlainError`; then stream, memo and sizes are of no more use.
        """
        try:
            if self.sizes is None:
                self._write_presumed(pickler, stream, sizes)
            else:
                pickler.dump(("", "", self.values))
                sizes.update(self.sizes)
        except Exception as error:
            raise NotPlainError from error

    def _write_presumed(self, pickler: Any, stream: GraphStream, sizes: dict[str, int]) -> None:
        before, count = stream.tell(), len(self.values)
        stream.end = before + min(count * _SMALL_BYTES, _LARGEST_TOGETHER_BYTES)
        pickler.reducer_override = _refuse
        pickler.dump(("", "", dict(self.values)))
        del pickler.reducer_override
        if stream.tell() > stream.end:
            raise NotPlainError
        stream.end = None
        sizes.update(dict.fromkeys(self.values, (stream.tell() - before) // count))


def _refuse(thing: Any) -> Any:
    if type(thing) is complex:  # built in, but pickled by ``copyreg``
        return NotImplemented
    raise NotPlainError


def presumed_plain(values: Mapping[str, Any]) -> PlainValues:
    """Names whose values are plain as far as their types tell; none where it is not worth it."""
    if len(values) < _FEWEST:
        return PlainValues()
    if _PLAIN.issuperset(map(type, values.values())):
        return PlainValues(values)
    found = {name: value for name, value in values.items() if type(value) in _PLAIN}
    return PlainValues(found if len(found) >= _FEWEST else {})


def certainly_plain(values: Mapping[str, Any]) -> PlainValues:
    """Names of plain small values, each looked at; none where it is not worth it."""
    names = [
        name
        for name, value in values.items()
        if (kind := type(value)) in _ATOMS or (kind in _SIZED and len(value) <= _LONGEST)
    ]
    found: dict[str, int] = {}
    for start in range(0, len(names), _FEWEST):
        found |= _group(names[start : start + _FEWEST], values)
    if len(found) < _FEWEST:
        return PlainValues()
    return PlainValues({name: values[name] for name in found}, found)


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
