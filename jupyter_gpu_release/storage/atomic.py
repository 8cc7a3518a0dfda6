"""Files that are there whole or not at all: unique temp name, fsync, ``os.replace``; 0600 in 0700 folders."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from ..errors import StoreError

Chunk = bytes | bytearray | memoryview


def make_private_folder(path: Path) -> None:
    """Make ``path`` and its parents; each folder that is made here is 0700."""
    try:
        # mkdir(parents=True) would make the parents by the umask alone
        for folder in reversed([path, *(parent for parent in path.parents if not parent.exists())]):
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {path}: {error.strerror}", mend=_MEND) from error


_MEND = "check the path, its owner and the free space, or set JUPYTER_GPU_STORE (JUPYTER_GPU_HOME) elsewhere"


def write_atomic(path: Path, chunks: Iterable[Chunk], *, durable: bool = True) -> int:
    """Write ``chunks`` as the file ``path`` in one step and return its size in bytes.

    Raises :class:`StoreError` naming path and bytes; then nothing of the attempt is left.
    """
    temp = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    written = 0
    try:
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for chunk in chunks:
                written += _write_all(descriptor, chunk)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temp, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        temp.unlink(missing_ok=True)
        message = f"cannot write {path} (after {written} bytes): {error.strerror}"
        raise StoreError(message, mend=_MEND) from error
    return written


def _write_all(descriptor: int, chunk: Chunk) -> int:
    view = memoryview(chunk).cast("B")
    done = 0
    while done < len(view):
        done += os.write(descriptor, view[done : done + (64 << 20)])
    return done


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
