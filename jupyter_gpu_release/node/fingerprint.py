"""Whether an input was changed in place: two dumps made in this process, after loading and after the cell."""

from __future__ import annotations

import hashlib
import io
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..storage.graph_map import GraphMap
from ..storage.memory import address_of
from ..storage.numbered_parts import LargeInput
from ..storage.pickler import GraphPickler
from ..storage.rebuild import Realm
from ..storage.references import parts_of

_ATOMS = (str, bytes, int, float, complex, bool, type(None), range)


class _Buffer(NamedTuple):
    address: int
    length: int
    #: where its pristine bytes are; else ``digest`` of them
    origin: GraphMap | None
    digest: bytes


class Fingerprint(NamedTuple):
    """What a value looked like."""

    stream: bytes
    buffers: tuple[_Buffer, ...]
    #: ids of the objects in it, as they were met; of a large graph only of what the value itself holds
    idents: array[int]


class FingerprintReader:
    """Takes fingerprints of several values at one moment; memory that they share is read once.

    Memory that lies in a mapped graph file is not read at all: the file is its pristine copy.
    """

    def __init__(self, realm: Realm, maps: Iterable[GraphMap], *, large: bool) -> None:
        self._realm = realm
        self._large = large
        self._maps = list(maps)
        self._digests: dict[tuple[int, int], bytes] = {}
        self._unchanged: dict[tuple[int, int], bool] = {}

    def take(self, value: Any) -> Fingerprint | None:
        """The fingerprint, or None when it cannot be taken (then the value counts as changed)."""
        dumped = self._dump(value)
        if dumped is None:
            return None
        stream, views = dumped
        return Fingerprint(stream, tuple(self._buffer(view) for view in views), self._idents(value))

    def is_same(self, before: Fingerprint | None, value: Any) -> bool:
        """Whether ``value`` still looks as it did; False when that cannot be decided."""
        dumped = None if before is None else self._dump(value)
        if before is None or dumped is None:
            return False
        stream, views = dumped
        if stream != before.stream or len(views) != len(before.buffers):
            return False
        return all(self._is_same_buffer(old, view) for old, view in zip(before.buffers, views, strict=True))

    def parts_in_place(self, before: Fingerprint, value: Any) -> tuple[Sequence[int], list[Any]]:
        """Ids of what a large ``value`` holds, 0 for what was not in this place before; and all that it holds."""
        parts = parts_of(value)
        now = array("Q", map(id, parts))
        if now == before.idents:
            return now, parts
        return [ident if ident == was else 0 for ident, was in zip(now, before.idents, strict=False)], parts

    def still_in_place(self, before: Fingerprint, value: Any) -> tuple[dict[int, int], list[Any]]:
        """Objects of ``value``, which was found to be the same last, by id, each at the place that it had then.

        (The address of one that is gone may be another's now, so an id alone says nothing.)
        """
        idents = before.idents
        found = {
            ident: (place, thing)
            for ident, (place, thing) in self._keep.memo.copy().items()
            if place < len(idents) and idents[place] == ident
        }
        return {ident: place for ident, (place, _) in found.items()}, [thing for _, thing in found.values()]

    def as_large(self, name: str, value: Any) -> LargeInput:
        """All that is in ``value``, which was found to be the same last."""
        return LargeInput(name, value, self._keep)

    # ---------------------------------------------------------------------------------- inside
    def _idents(self, value: Any) -> array[int]:
        if self._large:
            return array("Q", map(id, parts_of(value)))
        memo = self._keep.memo.copy()
        idents = array("Q", bytes(8 * len(memo)))
        for ident, (place, _) in memo.items():
            idents[place] = ident
        return idents

    def _dump(self, value: Any) -> tuple[bytes, list[memoryview]] | None:
        file = io.BytesIO()
        buffers: list[memoryview] = []
        pickler = GraphPickler(file, self._realm, buffers, compact=True)
        try:
            pickler.dump(value)
        except Exception:  # noqa: BLE001 - reducers are foreign code
            return None
        self._keep = pickler  # its memo holds what the views look at
        raw = file.getvalue()
        # equal streams, not equal digests, decide for short ones: nothing to explain then
        return (raw if len(raw) <= 64 else hashlib.sha1(raw, usedforsecurity=False).digest()), buffers

    def _buffer(self, view: memoryview) -> _Buffer:
        address = address_of(view)
        origin = next((m for m in self._maps if m.holds(address, view.nbytes)), None) if address else None
        digest = b"" if origin is not None else self._digest(view)
        return _Buffer(address, view.nbytes, origin, digest)

    def _digest(self, view: memoryview) -> bytes:
        # a read-only view may be of something that was made for it, and its address be another's next
        address = 0 if view.readonly else address_of(view)
        key = (address, view.nbytes)
        found = self._digests.get(key) if address else None
        if found is None:
            found = self._digests[key] = hashlib.sha1(view, usedforsecurity=False).digest()
        return found

    def _is_same_buffer(self, before: _Buffer, view: memoryview) -> bool:
        if view.nbytes != before.length:
            return False
        address = address_of(view)
        if before.origin is None:
            return self._digest(view) == before.digest
        if address != before.address:
            return before.origin.equals(before.address, view)
        key = (address, view.nbytes)
        if key not in self._unchanged:
            self._unchanged[key] = before.origin.unchanged(address, view.nbytes)
        return self._unchanged[key]


def is_immutable(value: Any) -> bool:
    """Whether a value cannot be changed in place."""
    if isinstance(value, _ATOMS):
        return True
    return type(value) in (tuple, frozenset) and all(map(is_immutable, value))
