"""Unpacking a bundle beside the runs: everything verified before the gateway may make a run of it."""

from __future__ import annotations

import mmap
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from ..errors import RequestError, StoreError
from .atomic import make_private_folder, write_atomic
from .blobs import BlobStore
from .bundle import BundledFile, BundleReader, check_graphs
from .footprint import graphs_of
from .graph_file import blobs_of
from .layout import RunPaths
from .runs import read_manifest

_NAME = re.compile(r"[0-9a-f]{16}")


def incoming_folder(store: Path, name: str) -> Path:
    """Where the import called ``name`` is unpacked; raises :class:`RequestError` for what is no such name."""
    if not _NAME.fullmatch(name):
        raise RequestError(f"{name[:40]!r} is not the name of an import", mend="`jupyter gpu runs import FILE`")
    return store / "incoming" / name


def unpack(store: Path, reader: BundleReader) -> str:
    """Unpack into ``<store>/incoming/<name>`` and return the name; nothing of a failure is left.

    Blobs go to their place at once: they are what their names say, and collected when no run comes to refer to them.
    Raises :class:`RequestError` for a bundle that is not what it says, :class:`StoreError` for the store's troubles.
    """
    _check_space(store, reader)
    name = secrets.token_hex(8)
    folder = incoming_folder(store, name)
    try:
        make_private_folder(folder / "files")
        for number, file in enumerate(reader.head.files):
            _unpack_file(folder, number, file, reader)
        for blob in reader.head.blobs:
            _unpack_blob(store, folder, blob.digest, reader.member(f"blobs/{blob.digest}", size=blob.bytes), reader)
        reader.end()
        _check_whole(folder, reader)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreError(
            f"cannot unpack into {folder}: {error.strerror}", mend="check rights and free space"
        ) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return name


def _check_space(store: Path, reader: BundleReader) -> None:
    make_private_folder(store / "incoming")
    facts = os.statvfs(store)
    free, needed = facts.f_bavail * facts.f_frsize, reader.head.total_bytes
    if needed > free:
        raise StoreError(
            f"the import needs {needed} bytes in {store}, and {free} are free", mend="make room: `jupyter gpu gc`"
        )


def _unpack_file(folder: Path, number: int, file: BundledFile, reader: BundleReader) -> None:
    target = folder / file.path
    make_private_folder(target.parent)
    summed = blake3()
    write_atomic(target, _summed(reader.member(f"run/{number:06}", size=file.bytes), summed))
    if summed.hexdigest() != file.digest:
        raise reader.refuse_content(file.path)


def _summed(pieces: Iterator[bytes], summed: blake3) -> Iterator[bytes]:
    for piece in pieces:
        summed.update(piece)
        yield piece


def _unpack_blob(store: Path, folder: Path, digest: str, pieces: Iterator[bytes], reader: BundleReader) -> None:
    temp = folder / "blob"
    size = write_atomic(temp, pieces, durable=False)
    if not size:
        raise reader.refuse_content(f"blob {digest}")
    with temp.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = blake3(content, max_threads=2).hexdigest()
        if found != digest:
            raise reader.refuse_content(f"blob {digest}")
        BlobStore(store / "blobs").put(content)
    temp.unlink()


def _check_whole(folder: Path, reader: BundleReader) -> None:
    """The manifest is readable and of this run, its values are there, and so is every blob that a graph refers to."""
    paths = RunPaths(folder)
    manifest = read_manifest(paths)
    if manifest.get("run") != reader.head.run:
        raise reader.refuse_content("manifest.json")
    check_graphs(paths, manifest)
    listed = {blob.digest: blob.bytes for blob in reader.head.blobs}
    for graph, _ in graphs_of(folder):
        if any(listed.get(digest) != size for digest, size in blobs_of(graph)):
            raise reader.refuse_content(graph.name)
