"""One object graph as one file: pickle stream, buffers aligned to 64 bytes, then an index and a fixed tail.

The digest of a file is the blake2b-128 of its index, which holds the stream's own digest (only the stream can
run code when loaded) and a CRC-32 of each buffer. So a 1 GiB file opens without being read; its length, index and
stream are always checked, its buffers only up to ``VERIFY_BYTES`` (or when asked).
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
from .graph_map import GraphMap

ALIGNMENT = 64
VERIFY_BYTES = 16 << 20
_MAGIC = b"jgr-graph-1\n"
_TAIL = struct.Struct("<QQ16s")
_STEP = 1 << 22


class _Index(msgspec.Struct, frozen=True, array_like=True):
    stream: tuple[int, int]
    stream_digest: bytes
    #: offset, length, CRC-32
    buffers: list[tuple[int, int, int]]


class OpenGraph(NamedTuple):
    """``buffers`` are writable views of a private mapping: writing to them never changes the file."""

    stream: bytes
    buffers: list[memoryview]


def write_graph(path: Path, stream: bytes, buffers: Sequence[Any], *, durable: bool = True) -> str:
    """Write the file in one step and return its digest; raises :class:`StoreError` with nothing left behind."""
    layout = _Layout(stream, [memoryview(buffer).cast("B") for buffer in buffers])
    write_atomic(path, layout.chunks(), durable=durable)
    return layout.digest


class _Layout:
    """Yields the file's chunks and sums them on the way."""

    def __init__(self, stream: bytes, buffers: list[memoryview]) -> None:
        self._stream = stream
        self._buffers = buffers
        self.digest = ""

    def chunks(self) -> Iterator[Chunk]:
        yield _MAGIC
        at = len(_MAGIC)
        yield self._stream
        stream_at, at = at, at + len(self._stream)
        placed: list[tuple[int, int, int]] = []
        for buffer in self._buffers:
            gap = -at % ALIGNMENT
            yield bytes(gap)
            at += gap
            crc = 0
            for start in range(0, len(buffer), _STEP):
                piece = buffer[start : start + _STEP]
                crc = zlib.crc32(piece, crc)
                yield piece
            placed.append((at, len(buffer), crc))
            at += len(buffer)
        index = msgspec.msgpack.encode(_Index((stream_at, len(self._stream)), _digest(self._stream), placed))
        yield index
        yield _TAIL.pack(at, len(index), _MAGIC.ljust(16))
        self.digest = _digest(index).hex()


def open_graph(path: Path, digest: str, *, verify: bool | None = None) -> OpenGraph:
    """Open a graph file whose ``digest`` is known from its writer.

    ``verify``: read and check the buffers too (None: up to ``VERIFY_BYTES``). Raises :class:`StoreError` when the
    file is missing, torn, altered, or belongs to another user (loading it could run that user's code).
    """
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
        mapping = GraphMap.of(descriptor)
    except OSError as error:
        raise StoreError(f"cannot map {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return _read(path, mapping, digest, verify)


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
    if verify or (verify is None and len(view) <= VERIFY_BYTES):
        _check_buffers(path, view, index)
    return OpenGraph(stream, [view[at : at + size] for at, size, _ in index.buffers])


def _check_buffers(path: Path, view: memoryview, index: _Index) -> None:
    for at, size, crc in index.buffers:
        if zlib.crc32(view[at : at + size]) != crc:
            raise _damaged(path, "a buffer was altered")


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is damaged: {why}", mend="run the cell again; look at the filesystem's health")
