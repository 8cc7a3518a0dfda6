"""What the end of a graph file says: where its stream and its buffers are. Two versions of it.

``jgr-graph-2``: small buffers lie in the file, large ones are blobs, by digest. ``jgr-graph-1`` (read, not written any
more): a large buffer may lie in a second name of another run's file, ``<name>.1``.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import StoreError

MAGIC = b"jgr-graph-2\n"
_MAGIC_1 = b"jgr-graph-1\n"
TAIL = struct.Struct("<QQ16s")


class Place(msgspec.Struct, frozen=True, array_like=True):
    """One buffer: at ``at`` in the file with its CRC-32, or a ``blob``."""

    length: int
    at: int = 0
    crc: int = 0
    blob: str = ""


class Index(msgspec.Struct, frozen=True, array_like=True):
    """Version 2. ``stream_digest``: blake2b-128 of a stream that lies in the file (a blob's name is its digest)."""

    stream: Place
    stream_digest: bytes
    buffers: list[Place]


class _Place1(msgspec.Struct, frozen=True, array_like=True):
    at: int
    length: int
    #: None: in a linked file, where its own index knows it
    crc: int | None
    #: 0: this file, n: the file ``<name>.n``
    file: int = 0


class _Index1(msgspec.Struct, frozen=True, array_like=True):
    stream: tuple[int, int]
    stream_digest: bytes
    buffers: list[_Place1]
    #: sizes of the linked files (the very first files have no such list)
    links: list[int] = []


class Contents(NamedTuple):
    """Either version. ``linked``: buffer number → (number of the linked file, its size); version 1 only."""

    table: Index
    linked: dict[int, tuple[int, int]]


class Tail(NamedTuple):
    """Where the index is."""

    version: int
    at: int
    length: int


def pack_tail(at: int, index: bytes) -> bytes:
    """The last bytes of a file whose index begins at ``at``."""
    return TAIL.pack(at, len(index), MAGIC.ljust(16))


def read_tail(path: Path, head: bytes, tail: bytes, size: int) -> Tail:
    """Check a file's first and last bytes; raises :class:`StoreError` when it is not whole."""
    magic = bytes(head[: len(MAGIC)])
    if size < len(MAGIC) + TAIL.size or magic not in (MAGIC, _MAGIC_1):
        if magic[:10] == MAGIC[:10] and size > len(MAGIC) + TAIL.size:
            raise StoreError(f"{path} was written by a newer version", mend="upgrade jupyter_gpu_release")
        raise damaged(path, "it is no graph file, or cut short")
    at, length, mark = TAIL.unpack(tail)
    if mark != magic.ljust(16) or at + length + TAIL.size != size:
        raise damaged(path, "it is cut short")
    return Tail(2 if magic == MAGIC else 1, at, length)


def read_index(path: Path, version: int, raw: bytes) -> Contents:
    """Decode an index; raises :class:`StoreError` when it cannot be."""
    try:
        if version == 2:
            return Contents(msgspec.msgpack.decode(raw, type=Index), {})
        old = msgspec.msgpack.decode(raw, type=_Index1)
    except msgspec.DecodeError as error:
        raise damaged(path, f"its index cannot be read ({error})") from error
    places = [Place(place.length, place.at, place.crc or 0) for place in old.buffers]
    linked = {number: (place.file, old.links[place.file - 1]) for number, place in enumerate(old.buffers) if place.file}
    stream = Place(old.stream[1], old.stream[0])
    return Contents(Index(stream, old.stream_digest, places), linked)


def graph_digest(index: bytes) -> str:
    """The digest of a graph file is that of its index, which holds those of all that is in it."""
    return short_digest(index).hex()


def short_digest(data: bytes) -> bytes:
    """blake2b-128."""
    return hashlib.blake2b(data, digest_size=16).digest()


def damaged(path: Path, why: str) -> StoreError:
    """The error for a file that is not what its writer wrote."""
    return StoreError(f"{path} is damaged: {why}", mend="run the cell again; look at the filesystem's health")
