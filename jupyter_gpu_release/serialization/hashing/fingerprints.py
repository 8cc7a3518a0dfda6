"""Fingerprints of values: what a value looked like, to tell later whether it was changed in place."""

from __future__ import annotations

import contextlib
import hashlib
import io
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...exchange.shallow import Heap, TooLargeError, read_heap
from ...exchange.verdicts import Numbering
from ...store.mapped.mapping import GraphMap
from ...store.mapped.memory import address_of
from ..pickler import GraphPickler
from ..rebuild import NamespaceInfo
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


class Compared(NamedTuple):
    """The state of a value before and now; ``things``: the notebook's objects in it, by their numbers."""

    before: Heap
    after: Heap
    things: dict[int, Any]


class _Bytes:
    """Stands for a buffer in a state: ``was`` before, ``view`` now."""

    def __init__(self, reader: FingerprintReader, was: _Buffer | None, view: memoryview | None) -> None:
        self._reader = reader
        self.was = was
        self.view = view

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Bytes):
            return NotImplemented
        was, view = self.was or other.was, other.view if self.view is None else self.view
        return was is not None and view is not None and self._reader._is_same_buffer(was, view)

    __hash__ = None  # type: ignore[assignment]


class FingerprintReader:
    """Takes fingerprints of several values at one moment; memory that they share is read once.

    Memory that lies in a mapped graph file is not read at all: the file is its pristine copy. ``numbering``: which
    objects are the notebook's; with it a fingerprint can be compared object by object.
    """

    def __init__(
        self, realm: NamespaceInfo, maps: Iterable[GraphMap], *, large: bool, numbering: Numbering | None = None
    ) -> None:
        self._numbering = numbering
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
        return self._large or self._is_in_place(before.idents, value)

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
    def _is_in_place(self, idents: array[int], value: Any) -> bool:
        """Tell if the notebook's objects are where they were in a value. What taking apart makes has any address."""
        numbering = self._numbering
        if numbering is None:
            return True
        now = self._idents(value)
        return now == idents or all(
            is_now == was or numbering.at(was) is None for was, is_now in zip(idents, now, strict=True)
        )

    def compare(self, before: Fingerprint | None, value: Any) -> Compared | None:
        """The state of ``value`` before and now, object by object; None: that cannot be told.

        It is taken apart twice while both results live: what differs in its address was made for the moment.
        """
        was = None if before is None else self.read_then(before)
        found = None if was is None else self.read_now(value)
        return None if was is None or found is None else Compared(was, *found)

    def read_then(self, before: Fingerprint) -> Heap | None:
        """The state of a value before."""
        if self._numbering is None:
            return None
        at, buffers = self._numbering.at, [_Bytes(self, buffer, None) for buffer in before.buffers]
        with contextlib.suppress(TooLargeError):
            return read_heap(before.stream, buffers, lambda place: at(before.idents[place]))
        return None

    def read_now(self, value: Any) -> tuple[Heap, dict[int, Any]] | None:
        """The state of ``value``, and the notebook's objects in it by their numbers; None: that cannot be told."""
        if self._numbering is None or (first := self._dump(value)) is None:
            return None
        made = self._keep
        second = self._dump(value)
        if second is None or first[0] != second[0]:  # taking it apart does something
            return None
        memo = self._keep.memo.copy()
        things = {
            place: memo[ident][1] for ident, place in self._places(made).items() & self._places(self._keep).items()
        }
        numbers = {
            place: number for place, thing in things.items() if (number := self._numbering.of(thing)) is not None
        }
        try:
            heap = read_heap(second[0], [_Bytes(self, None, view) for view in second[1]], numbers.get)
        except TooLargeError:
            return None
        return heap, {number: things[place] for place, number in numbers.items()}

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
        is_kept = self._numbering is not None or len(raw) <= 64
        return (raw if is_kept else hashlib.sha1(raw, usedforsecurity=False).digest()), buffers

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
