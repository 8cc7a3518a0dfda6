"""Store files mapped private and writable: pages that nobody wrote to stay the file's own and cost no memory.

A mapping holds its file's content (also when the file is unlinked) but no descriptor: a model of a thousand tensors
is a thousand mappings. Where the file is cut short under it, ``store/mapped/sigbus.py`` keeps the process alive.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable
from pathlib import Path

from ...errors import StoreError
from ..files import open_plain
from . import sigbus
from .memory import address_of, map_file, page_flags

_PAGE = mmap.PAGESIZE
_STEP = 1 << 20
_NORESERVE = 0x4000  # mmap.MAP_NORESERVE is newer than Python 3.11
#: high byte of a pagemap entry: bit 7 present, 6 swapped, 5 file page (Documentation/admin-guide/mm/pagemap.rst)
_CLEAN = bytes(flags for flags in range(256) if not flags & 0x40 and (not flags & 0x80 or flags & 0x20))
_CLEAN_SET = frozenset(_CLEAN)


class GraphMap(mmap.mmap):
    """Copy-on-write mapping of a whole file that can tell which of its bytes were changed.

    ``digest``: of the blob that is mapped (empty for a graph file); ``used_by``: the graph file that refers to it.
    """

    address: int
    path: Path
    digest: str = ""
    used_by: Path
    #: addresses where reading failed: from there on are zeros
    torn: list[int]
    _file: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, path: Path, descriptor: int, *, digest: str = "", used_by: Path | None = None) -> GraphMap:
        """Map the whole file behind ``descriptor``, which the caller closes; raises OSError."""
        facts = os.fstat(descriptor)
        # Python's own file mappings keep a descriptor each: reserve the addresses, then map over them
        mapping = cls(-1, facts.st_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        mapping.address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        map_file(mapping.address, facts.st_size, descriptor)
        mapping.path, mapping.digest, mapping.used_by = path, digest, used_by or path
        mapping.torn = []
        mapping._file = (facts.st_dev, facts.st_ino)
        _LIVE.add(mapping)
        sigbus.guard_mappings(_LIVE.at)
        return mapping

    def holds(self, address: int, length: int) -> bool:
        """Tell if the memory at ``address`` lies in this mapping."""
        return self.address <= address and address + length <= self.address + len(self)

    def is_untouched(self) -> bool:
        """Tell if no page was ever written to, by the kernel's own account; False where that is not known."""
        if self.torn:
            return False
        flags = page_flags(self.address, len(self))
        return flags is not None and not flags.translate(None, _CLEAN)

    def unchanged(self, address: int, length: int) -> bool:
        """Tell if the memory still equals the file; reads only what was written to, where the system tells."""
        if self.torn:
            return False
        offset = address - self.address
        ranges = [
            (max(start, offset), min(end, offset + length)) for start, end in self._written_ranges(offset, length)
        ]
        return self._is_in_file([(start, memoryview(self)[start:end]) for start, end in ranges])

    def equals(self, address: int, other: memoryview) -> bool:
        """Tell if ``other`` holds what the file has for the memory at ``address``."""
        return self._is_in_file([(address - self.address, other)])

    def _is_in_file(self, parts: list[tuple[int, memoryview]]) -> bool:
        """Tell if each part stands in the file at its offset. Read, not mapped: the file may be cut short meanwhile."""
        if not parts:
            return True
        try:
            descriptor = open_plain(self.path)
        except OSError:
            return False
        try:
            facts = os.fstat(descriptor)
            if (facts.st_dev, facts.st_ino) != self._file:
                return False
            return all(_stands_at(descriptor, start, part) for start, part in parts)
        except OSError:  # a disk that fails
            return False
        finally:
            os.close(descriptor)

    def _written_ranges(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Page ranges (offsets) of the mapping that are private copies now; all of it where that is not known."""
        first = offset // _PAGE
        flags = page_flags(self.address + offset, length)
        if flags is None:
            return [(offset, offset + length)]
        if not flags.translate(None, _CLEAN):
            return []
        ranges: list[tuple[int, int]] = []
        for number, flag in enumerate(flags, first):
            if flag in _CLEAN_SET:
                continue
            if ranges and ranges[-1][1] == number * _PAGE:
                ranges[-1] = (ranges[-1][0], (number + 1) * _PAGE)
            else:
                ranges.append((number * _PAGE, (number + 1) * _PAGE))
        return ranges


def _stands_at(descriptor: int, start: int, part: memoryview) -> bool:
    piece = bytearray(min(_STEP, len(part)))
    for at in range(0, len(part), _STEP):
        del piece[len(part) - at :]  # the last one is shorter
        if os.preadv(descriptor, [piece], start + at) != len(piece) or piece != part[at : at + _STEP]:
            return False  # a bytearray compares with any memory at the speed of memcmp, a memoryview does not
    return True


class _Live:
    """Mappings by address, as long as anybody uses them. Without a lock: it is asked inside a signal's handler."""

    def __init__(self) -> None:
        self._maps: weakref.WeakValueDictionary[int, GraphMap] = weakref.WeakValueDictionary()
        self._starts: list[int] = []

    def add(self, mapping: GraphMap) -> None:
        if mapping.address not in self._maps and mapping.address not in self._starts[-1:]:
            bisect.insort(self._starts, mapping.address)
        self._maps[mapping.address] = mapping

    def torn(self) -> list[GraphMap]:
        return [mapping for mapping in list(self._maps.values()) if mapping.torn]

    def at(self, address: int) -> GraphMap | None:
        """The mapping in which this address lies."""
        at = bisect.bisect_right(self._starts, address) - 1
        while at >= 0:
            start = self._starts[at]
            mapping = self._maps.get(start)
            if mapping is not None:
                return mapping if mapping.holds(address, 1) else None
            if self._starts[at : at + 1] == [start]:  # of one that is gone
                del self._starts[at]
            at -= 1
        return None


_LIVE = _Live()


def mapping_at(view: memoryview) -> tuple[GraphMap, int] | None:
    """The mapping that holds this memory, and where in it."""
    address = address_of(view)
    mapping = _LIVE.at(address) if address else None
    if mapping is None or not mapping.holds(address, view.nbytes):
        return None
    return mapping, address - mapping.address


def torn_maps() -> list[GraphMap]:
    """Mappings in use of which some could not be read and is zeros now."""
    return _LIVE.torn()


def refuse_torn(buffers: Iterable[memoryview]) -> None:
    """Raise :class:`StoreError` for memory of a file of which some is lost: nobody would notice the zeros later."""
    for buffer in buffers:
        found = mapping_at(buffer)
        if found is not None and found[0].torn:
            raise StoreError(
                f"not sent: some of its values came from {found[0].path}, could not be read any more and are zeros now",
                hint="run the cell that made them again (`x = x.copy()` keeps what there is, with the zeros)",
            )
