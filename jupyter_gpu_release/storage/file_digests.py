"""Digests of files that are open: of what was just written from the page cache, of what lies there by reading."""

from __future__ import annotations

import errno
import mmap
import os
import threading

from .digests import digest_of, hasher

_PIECE_BYTES = 8 << 20


def synced_digest(descriptor: int, length: int, *, durable: bool) -> str:
    """The digest of what was really written, taken from the page cache while the disk is at work."""
    problems: list[OSError] = []

    def sync() -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            problems.append(error)

    thread = threading.Thread(target=sync, name="blob fsync") if durable else None
    if thread is not None:
        thread.start()
    try:
        if os.fstat(descriptor).st_size != length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return digest_of_file(descriptor)
    finally:
        if thread is not None:
            thread.join()
        if problems:
            raise problems[0]


def digest_of_file(descriptor: int) -> str:
    """The digest of the whole file; raises OSError."""
    if not os.fstat(descriptor).st_size:
        return digest_of(b"")
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        return digest_of(content)


def read_digest(descriptor: int) -> str:
    """The digest of the rest of a file; raises OSError where a mapping would be a SIGBUS (a failing disk)."""
    total, piece = hasher(), bytearray(_PIECE_BYTES)
    while count := os.readv(descriptor, [piece]):
        total.update(memoryview(piece)[:count])
    return str(total.hexdigest())
