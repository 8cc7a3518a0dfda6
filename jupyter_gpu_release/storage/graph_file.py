"""One object graph as one file: pickle stream, buffers aligned to 64 bytes, then an index and a fixed tail.

The digest of a file is the blake2b-128 of its index, which holds the stream's own digest (only the stream can
run code when loaded) and a CRC-32 of each buffer. So a 1 GiB file opens without being read; its length, index and
stream are always checked, its buffers only up to ``VERIFY_BYTES`` (or when asked).

A large buffer that lies unchanged in another graph file that is open here (the result of one GPU cell on its way
into the next) is not written again: the other file gets a second name beside this one, ``<name>.1``.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import StoreError
from .atomic import Chunk, write_atomic
from .graph_map import GraphMap, map_of

ALIGNMENT = 64
VERIFY_BYTES = 16 << 20
#: smaller buffers are written again rather than linked
LINK_BYTES = 1 << 20
_MAGIC = b"jgr-graph-1\n"
_TAIL = struct.Struct("<QQ16s")
_STEP = 1 << 22


class _Place(msgspec.Struct, frozen=True, array_like=True):
    at: int
    length: int
    #: None: in a linked file, where its own index knows it
    crc: int | None
    #: 0: this file, n: the file ``<name>.n``
    file: int = 0


class _Index(msgspec.Struct, frozen=True, array_like=True):
    stream: tuple[int, int]
    stream_digest: bytes
    buffers: list[_Place]
    #: sizes of the linked files
    links: list[int]


class OpenGraph(NamedTuple):
    """``buffers`` are writable views of a private mapping: writing to them never changes the file."""

    stream: bytes
    buffers: list[memoryview]


def write_graph(path: Path, stream: bytes, buffers: Sequence[Any], *, durable: bool = True) -> str:
    """Write the file in one step and return its digest; raises :class:`StoreError` with nothing left behind."""
    layout = _Layout(path, stream, [memoryview(buffer).cast("B") for buffer in buffers])
    try:
        write_atomic(path, layout.chunks(), durable=durable)
    except StoreError:
        layout.unlink()
        raise
    return layout.digest


class _Layout:
    """Yields the file's chunks and sums them on the way."""

    def __init__(self, path: Path, stream: bytes, buffers: list[memoryview]) -> None:
        self._path = path
        self._stream = stream
        self._buffers = buffers
        self._links: dict[GraphMap, int] = {}
        self.digest = ""

    def chunks(self) -> Iterator[Chunk]:
        yield _MAGIC
        yield self._stream
        start, at = len(_MAGIC), len(_MAGIC) + len(self._stream)
        places: list[_Place] = []
        for buffer in self._buffers:
            linked = self._linked(buffer)
            if linked is not None:
                places.append(linked)
                continue
            gap = -at % ALIGNMENT
            yield bytes(gap)
            at += gap
            crc = 0
            for offset in range(0, len(buffer), _STEP):
                piece = buffer[offset : offset + _STEP]
                crc = zlib.crc32(piece, crc)
                yield piece
            places.append(_Place(at, len(buffer), crc))
            at += len(buffer)
        sizes = [len(mapping) for mapping in self._links]
        index = msgspec.msgpack.encode(_Index((start, len(self._stream)), _digest(self._stream), places, sizes))
        yield index
        yield _TAIL.pack(at, len(index), _MAGIC.ljust(16))
        self.digest = _digest(index).hex()

    def _linked(self, buffer: memoryview) -> _Place | None:
        """Where a large buffer lies in a file that has it already."""
        found = map_of(buffer) if len(buffer) >= LINK_BYTES else None
        if found is None:
            return None
        mapping, offset = found
        if not mapping.unchanged(mapping.address + offset, len(buffer)):
            return None
        if mapping not in self._links:
            target = _link_path(self._path, len(self._links) + 1)
            target.unlink(missing_ok=True)
            if not mapping.link(target):
                return None
            self._links[mapping] = len(self._links) + 1
        return _Place(offset, len(buffer), None, self._links[mapping])

    def unlink(self) -> None:
        """Take back the links of a file that was not written."""
        for number in self._links.values():
            _link_path(self._path, number).unlink(missing_ok=True)


def _link_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def open_graph(path: Path, digest: str, *, verify: bool | None = None) -> OpenGraph:
    """Open a graph file whose ``digest`` is known from its writer.

    ``verify``: read and check the buffers too (None: up to ``VERIFY_BYTES``). Raises :class:`StoreError` when the
    file is missing, torn, altered, or belongs to another user (loading it could run that user's code).
    """
    return _read(path, _map(path), digest, verify)


def _map(path: Path) -> GraphMap:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", mend="is the store mounted here?") from error
    try:
        _check_owner(path, descriptor)
        if not os.fstat(descriptor).st_size:
            raise _damaged(path, "it is empty")
        # cold mapped pages fault in at 0.8 GB/s, read ahead they come at 2.8
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        return GraphMap.of(path, descriptor)
    except OSError as error:
        raise StoreError(f"cannot map {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _check_owner(path: Path, descriptor: int) -> None:
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        raise StoreError(f"{path} belongs to user {owner}, not to this one: not loaded", mend="check who writes there")


def _read(path: Path, mapping: GraphMap, digest: str, verify: bool | None) -> OpenGraph:
    view = memoryview(mapping)
    if len(view) < len(_MAGIC) + _TAIL.size or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise _damaged(path, "it is no graph file, or cut short")
    index_at, index_length, mark = _TAIL.unpack(view[-_TAIL.size :])
    if mark != _MAGIC.ljust(16) or index_at + index_length + _TAIL.size != len(view):
        raise _damaged(path, "it is cut short")
    raw = bytes(view[index_at : index_at + index_length])
    if _digest(raw).hex() != digest:
        raise _damaged(path, "its digest is not the one that its writer reported")
    index = msgspec.msgpack.decode(raw, type=_Index)
    start, length = index.stream
    stream = bytes(view[start : start + length])
    if _digest(stream) != index.stream_digest:
        raise _damaged(path, "its stream was altered")
    views = [view, *(_linked_view(path, number, size) for number, size in enumerate(index.links, 1))]
    if verify or (verify is None and len(view) <= VERIFY_BYTES):
        _check_buffers(path, view, index)
    return OpenGraph(stream, [views[place.file][place.at : place.at + place.length] for place in index.buffers])


def _linked_view(path: Path, number: int, size: int) -> memoryview:
    linked = _link_path(path, number)
    mapping = _map(linked)
    if len(mapping) != size:
        raise _damaged(linked, "its size is not the one that was linked")
    return memoryview(mapping)


def _check_buffers(path: Path, view: memoryview, index: _Index) -> None:
    for place in index.buffers:
        if place.crc is not None and zlib.crc32(view[place.at : place.at + place.length]) != place.crc:
            raise _damaged(path, "a buffer was altered")


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is damaged: {why}", mend="run the cell again; look at the filesystem's health")
