"""Fingerprints of values: what a value looked like, to tell later whether it was changed in place."""

from __future__ import annotations

import gc
import hashlib
import io
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...store.mapped.mapping import GraphMap
from ...store.mapped.memory import address_of
from ..pickler import GraphPickler
from ..rebuild import NamespaceInfo
from ..sharing.held_elsewhere import held_elsewhere
from ..sharing.numbered_parts import LargeInput
from ..sharing.references import parts_of


class _Buffer(NamedTuple):
    address: int
    length: int
    #: where its pristine bytes are; else ``digest`` of them
    origin: GraphMap | None
    digest: bytes


class Fingerprint(NamedTuple):
    """Record of what a value looked like."""

    stream: bytes
    buffers: tuple[_Buffer, ...]
    #: ids of the objects in it, as they were met; of a large graph only of what the value itself holds
    idents: array[int]


class FingerprintReader:
    """Takes fingerprints of several values at one moment; memory that they share is read once.

    Memory that lies in a mapped graph file is not read at all: the file is its pristine copy.
    """

    def __init__(self, realm: NamespaceInfo, maps: Iterable[GraphMap], *, large: bool) -> None:
        self._realm = realm
        self._large = large
        self._maps = list(maps)
        #: each with what it was read from: memory that is let go may be another's next
        self._digests: dict[tuple[int, int], tuple[memoryview, bytes]] = {}
        self._unchanged: dict[tuple[int, int], bool] = {}

    def read_fingerprint(self, value: Any) -> Fingerprint | None:
        """The fingerprint, or None when it cannot be taken (then the value counts as changed)."""
        dumped = self._dump(value)
        if dumped is None:
            return None
        stream, views = dumped
        return Fingerprint(stream, tuple(self._buffer(view) for view in views), self._idents(value))

    def is_same(self, before: Fingerprint | None, value: Any) -> bool:
        """Tell if ``value`` still looks as it did; False when that cannot be decided."""
        dumped = None if before is None else self._dump(value)
        if before is None or dumped is None:
            return False
        stream, views = dumped
        if stream != before.stream or len(views) != len(before.buffers):
            return False
        if not all(self._is_same_buffer(old, view) for old, view in zip(before.buffers, views, strict=True)):
            return False
        return self._large or not self._has_shared_new_parts(before.idents, value)

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

    def all_of_last(self) -> set[int]:
        """Ids of all that is in the value that was looked at last."""
        return set(self._places(self._keep))

    # ---------------------------------------------------------------------------------- inside
    def _has_shared_new_parts(self, idents: array[int], value: Any) -> bool:
        """Tell if something took the place of its equal in a value, and others hold it, too: they may change it next.

        (``box["log"] = log = []``.) Much that a pickler writes is made for it, and may have any address. So what looks
        like a new part is taken apart once more while that is alive: only what comes again is part of the value.
        """
        if not self._shared_new_parts(idents, self._places(self._keep)):
            return False
        first = self._keep
        if self._dump(value) is None:
            return True
        lasting = self._places(first).items() & self._places(self._keep).items()
        del first  # what it has made holds parts, which would look as if others held them
        return self._shared_new_parts(idents, dict(lasting))

    def _shared_new_parts(self, idents: array[int], places: Mapping[int, int]) -> bool:
        """``places``: those of the parts, by id."""
        memo = self._keep.memo.copy()
        made = {ident for ident, place in places.items() if place >= len(idents) or idents[place] != ident}
        new, found = set[int](), places.keys() - made if made else set[int]()
        while found:
            found = made.intersection(map(id, gc.get_referents(*(memo[ident][1] for ident in found)))) - new
            new |= found
        return bool(new and held_elsewhere(memo, but=memo.keys() - new, own=self._held_here(), every_kind=True))

    def _held_here(self) -> Iterator[Any]:
        yield from self._keep.held_beside_memo()
        counted = set(map(id, self._keep.buffers))
        yield from (view.obj for view, _ in self._digests.values() if id(view) not in counted)

    @staticmethod
    def _places(pickler: GraphPickler) -> dict[int, int]:
        return {ident: place for ident, (place, _) in pickler.memo.copy().items()}

    def _idents(self, value: Any) -> array[int]:
        if self._large:
            return array("Q", map(id, parts_of(value)))
        places = self._places(self._keep)
        idents = array("Q", bytes(8 * len(places)))
        for ident, place in places.items():
            idents[place] = ident
        return idents

    def _dump(self, value: Any) -> tuple[bytes, list[memoryview]] | None:
        file = io.BytesIO()
        buffers: list[memoryview] = []
        # its memo holds what the views look at
        pickler = self._keep = GraphPickler(file, self._realm, buffers, compact=True)
        try:
            pickler.dump(value)
        except Exception:  # noqa: BLE001 - reducers are foreign code
            return None
        raw = file.getvalue()
        # equal streams, not equal digests, decide for short ones: nothing to explain then
        return (raw if len(raw) <= 64 else hashlib.sha1(raw, usedforsecurity=False).digest()), buffers

    def _buffer(self, view: memoryview) -> _Buffer:
        address = address_of(view)
        origin = next((m for m in self._maps if m.holds(address, view.nbytes)), None) if address else None
        digest = b"" if origin is not None else self._digest(view)
        return _Buffer(address, view.nbytes, origin, digest)

    def _digest(self, view: memoryview) -> bytes:
        if view.readonly:  # often a copy that was made for it, which nothing else looks at
            return hashlib.sha1(view, usedforsecurity=False).digest()
        key = (address_of(view), view.nbytes)
        if key not in self._digests:
            self._digests[key] = view, hashlib.sha1(view, usedforsecurity=False).digest()
        return self._digests[key][1]

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
