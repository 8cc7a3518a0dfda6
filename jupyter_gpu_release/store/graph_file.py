"""One object graph as one file: index, small buffers, references to blobs.

A stream or a buffer of 1 MiB and more is a blob of the store (``store/blobs.py``), named by its content: what is there
already, from whichever run, is not written again. A graph outside of a run folder has no store and holds all itself.
The file's first and last bytes say the format's version; ``tests/store/data`` keeps a store of each version.

The digest of a graph is the blake2b-128 of its index, which holds the stream's own digest (only the stream can run
code when loaded), the digests of the blobs and a CRC-32 of each other buffer. So 1 GiB opens without being read:
lengths, index and stream are always checked, buffers only up to ``VERIFY_BYTES`` in all (or when asked).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import StoreError
from ..protocol.cell import Graph
from . import ownership
from .blobs import BlobStore, damaged_error
from .digests import digest_of
from .files import UNLIMITED, Chunk, Pace, open_plain, write_atomic
from .layout import RunPaths, blobs_folder_beside
from .mapped.mapping import GraphMap
from .run_folders import explain_collected

MAGIC = b"jgr-graph-1\n"
TAIL = struct.Struct("<QQ16s")


class BufferEntry(msgspec.Struct, frozen=True, array_like=True):
    """One buffer: at ``at`` in the file with its CRC-32, or a ``blob``."""

    length: int
    at: int = 0
    crc: int = 0
    blob: str = ""


class Index(msgspec.Struct, frozen=True, array_like=True):
    """``stream_digest``: blake2b-128 of a stream that lies in the file (a blob's name is its digest)."""

    stream: BufferEntry
    stream_digest: bytes
    buffers: list[BufferEntry]


class Tail(NamedTuple):
    """The place of the index."""

    at: int
    length: int


def pack_tail(at: int, index: bytes) -> bytes:
    """The last bytes of a file whose index begins at ``at``."""
    return TAIL.pack(at, len(index), MAGIC.ljust(16))


def read_tail(path: Path, head: bytes, tail: bytes, size: int) -> Tail:
    """Check a file's first and last bytes; raises :class:`StoreError` when it is not whole."""
    magic = bytes(head[: len(MAGIC)])
    if size < len(MAGIC) + TAIL.size or magic != MAGIC:
        if magic[:10] == MAGIC[:10] and size > len(MAGIC) + TAIL.size:
            raise StoreError(f"{path} was written by a newer version", hint="upgrade jupyter_gpu_release")
        raise damaged_error(path, "it is no graph file, or cut short")
    at, length, mark = TAIL.unpack(tail)
    if mark != magic.ljust(16) or at + length + TAIL.size != size:
        raise damaged_error(path, "it is cut short")
    return Tail(at, length)


def read_index(path: Path, raw: bytes) -> Index:
    """Decode an index; raises :class:`StoreError` when it cannot be."""
    try:
        return msgspec.msgpack.decode(raw, type=Index)
    except msgspec.DecodeError as error:
        raise damaged_error(path, f"its index cannot be read ({error})") from error


def graph_digest(index: bytes) -> str:
    """The digest of a graph file is that of its index, which holds those of all that is in it."""
    return short_digest(index).hex()


def short_digest(data: bytes) -> bytes:
    """blake2b-128."""
    return hashlib.blake2b(data, digest_size=16).digest()


ALIGNMENT = 64
VERIFY_BYTES = 16 << 20
#: smaller buffers lie in the graph's own file
BLOB_BYTES = 1 << 20


class OpenGraph(NamedTuple):
    """``buffers`` are writable views of private mappings: writing to them never changes a file."""

    stream: bytes
    buffers: list[memoryview]


def write_graph(
    path: Path,
    stream: bytes,
    buffers: Sequence[Any],
    *,
    durable: bool = True,
    name_durable: bool = True,
    blobs: BlobStore | None = None,
    pace: Pace = UNLIMITED,
) -> str:
    """Write blobs that are not there yet, then the file in one step; returns the graph's digest.

    Parameters
    ----------
    durable, name_durable, pace
        As for :func:`write_atomic`.
    blobs
        Where large buffers go (None: the store of the run folder that ``path`` lies in, if it does).

    Raises
    ------
    StoreError
        There is no file then. Blobs that were written stay for the next attempt, or for ``gc``.
    """
    views = [memoryview(part).cast("B") for part in (stream, *buffers)]
    names = [""] * len(views)
    large = [number for number, view in enumerate(views) if len(view) >= BLOB_BYTES]
    store = (blobs or _store_of(path, pace)) if large else None
    if store is not None:
        for number, name in zip(large, store.put_buffers([views[n] for n in large], durable=durable), strict=True):
            names[number] = name
    layout = _Layout(stream, list(zip(views, names, strict=True)))
    write_atomic(
        path, layout.chunks(), durable=durable, name_durable=name_durable, size_bytes=layout.size_bytes, pace=pace
    )
    return layout.digest


def _store_of(path: Path, pace: Pace = UNLIMITED) -> BlobStore | None:
    folder = blobs_folder_beside(path)
    return None if folder is None else BlobStore(folder, pace=pace.wrote)


class _Layout:
    """Yields the file's chunks and sums them on the way. ``parts``: the stream, then the buffers; with their blobs."""

    def __init__(self, stream: bytes, parts: list[tuple[memoryview, str]]) -> None:
        self._stream_digest = b"" if parts[0][1] else short_digest(stream)
        self._parts = parts
        self.digest = ""

    @property
    def size_bytes(self) -> int:
        """About how large the file becomes."""
        return sum(len(view) + ALIGNMENT for view, blob in self._parts if not blob)

    def chunks(self) -> Iterator[Chunk]:
        yield MAGIC
        at = len(MAGIC)
        places: list[BufferEntry] = []
        for view, blob in self._parts:
            if blob:
                places.append(BufferEntry(len(view), blob=blob))
                continue
            gap = -at % ALIGNMENT
            at += gap
            yield bytes(gap)
            # a copy, small: what is summed is what is written, whoever changes the buffer meanwhile
            crc, length = 0, len(view)
            for offset in range(0, length, BLOB_BYTES):
                piece = bytes(view[offset : offset + BLOB_BYTES])
                crc = zlib.crc32(piece, crc)
                yield piece
            places.append(BufferEntry(length, at, crc))
            at += length
        index = msgspec.msgpack.encode(Index(places[0], self._stream_digest, places[1:]))
        yield index
        yield pack_tail(at, index)
        self.digest = graph_digest(index)


# ------------------------------------------------------------------------------------------- reading
def read_graph(graph: Graph, folder: Path) -> OpenGraph:
    """Open a graph that is in its message, or in a file of a run's ``folder``; raises as :func:`open_graph` does."""
    if not graph.file:
        return OpenGraph(graph.stream, [memoryview(bytearray(buffer)) for buffer in graph.buffers])
    if Path(graph.file).name != graph.file:
        raise StoreError(f"{graph.file!r} is no file name of a run folder")
    return open_graph(folder / graph.file, graph.digest)


def open_graph(path: Path, digest: str, *, verify: bool | None = None, blobs: BlobStore | None = None) -> OpenGraph:
    """Open a graph whose ``digest`` is known from its writer.

    ``verify``: read and check the buffers too (None: up to ``VERIFY_BYTES`` in all). ``blobs``: as for
    :func:`write_graph`. Raises :class:`StoreError` when the file or a blob is missing, torn, altered, or belongs to
    another user (loading it could run that user's code).
    """
    mapping = _map(path)
    view = memoryview(mapping)
    table = _read_table(path, view, digest)
    reader = _Buffers(path, view, blobs or _store_of(path))
    stream = bytes(reader.view(table.stream))
    blob = table.stream.blob
    if digest_of(stream) != blob if blob else short_digest(stream) != table.stream_digest:
        reader.move_away(blob)
        raise damaged_error(path, "its stream was altered")
    views = [reader.view(place) for place in table.buffers]
    if verify or (verify is None and sum(map(len, views)) <= VERIFY_BYTES):
        reader.check(table, views)
    return OpenGraph(stream, views)


def blobs_of(path: Path) -> list[tuple[str, int]]:
    """Digests and bytes of the blobs that a graph file refers to; reads its index only.

    Raises :class:`StoreError` when the file is missing or damaged.
    """
    table, _ = _peek(path)
    places = (table.stream, *table.buffers)
    return [(place.blob, place.length) for place in places if place.blob]


def blobs_of_buffers(path: Path) -> list[str]:
    """Like :func:`blobs_of`, for each buffer in order; empty for one that lies in the file."""
    return [place.blob for place in _peek(path)[0].buffers]


def digest_in(path: Path) -> str:
    """The digest of a graph file as it lies there (to compare it with what its writer reported)."""
    return _peek(path)[1]


def _peek(path: Path) -> tuple[Index, str]:
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(len(MAGIC))
            tail = read_tail(path, head, os.pread(file.fileno(), TAIL.size, max(0, size - TAIL.size)), size)
            raw = os.pread(file.fileno(), tail.length, tail.at)
    except OSError as error:
        raise _unreadable(path, error) from error
    return read_index(path, raw), graph_digest(raw)


def _read_table(path: Path, view: memoryview, digest: str) -> Index:
    tail = read_tail(path, bytes(view[: len(MAGIC)]), bytes(view[-TAIL.size :]), len(view))
    raw = bytes(view[tail.at : tail.at + tail.length])
    if graph_digest(raw) != digest:
        raise damaged_error(path, "its digest is not the one that its writer reported")
    return read_index(path, raw)


class _Buffers:
    """Finds a graph's buffers: in its file or in the store."""

    def __init__(self, path: Path, view: memoryview, store: BlobStore | None) -> None:
        self._path = path
        self._view = view
        self._store = store

    def view(self, place: BufferEntry) -> memoryview:
        if place.blob:
            if self._store is None:
                text = f"{self._path} refers to blobs of a store, but lies in no store's runs/ folder"
                raise StoreError(text, hint="open it where it was written, or import it with `jupyter gpu runs import`")
            return memoryview(self._store.map_blob(place.blob, place.length, used_by=self._path))
        return self._view[place.at : place.at + place.length]

    def move_away(self, blob: str) -> None:
        """Have the store look at a blob that was found damaged: who makes the same again must not find it."""
        if blob and self._store is not None:
            with contextlib.suppress(StoreError):
                self._store.verify_blob(blob)

    def check(self, table: Index, views: list[memoryview]) -> None:
        """Read the buffers and compare; raises :class:`StoreError`."""
        for place, view in zip(table.buffers, views, strict=True):
            if place.blob:
                assert self._store is not None
                self._store.verify_blob(place.blob)
            elif zlib.crc32(view) != place.crc:
                raise damaged_error(self._path, "a buffer was altered")


def _map(path: Path) -> GraphMap:
    try:
        descriptor = open_plain(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        facts = os.fstat(descriptor)
        if facts.st_uid != os.geteuid():
            ownership.check_owner(path, facts, doing="loaded")
        if not facts.st_size:
            raise damaged_error(path, "it is empty")
        # cold mapped pages fault in at 0.8 GB/s, read ahead they come at 2.8
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        return GraphMap.of(path, descriptor)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> StoreError:
    gone = explain_collected(RunPaths(path.parent)) if isinstance(error, FileNotFoundError) else ""
    if gone:
        text = f"the results of run {path.parent.name} were removed from the store ({gone})"
        return StoreError(text, hint="run the cell again; `--pin` keeps a run's results for good")
    return StoreError(f"cannot read {path}: {error.strerror}", hint="is the store mounted here?")
