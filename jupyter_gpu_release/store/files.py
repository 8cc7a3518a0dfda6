"""Atomic private writes, safe opening, write-rate limit.

A folder of the store that its group may write and hands its group on (mode 2770) is *shared*: what is made in it is its
group's, too, 2770 and 0660 whatever the umask. A default access list of the folder decides by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import sleep

from ..errors import StoreError
from ..units import format_bytes

_PIECES_A_S = 20
_UNLIMITED_STEP = 64 << 20


class Pace:
    """A limit in bytes a second (0: none) and the bytes written so far; may be shared by threads."""

    def __init__(self, bytes_per_s: int = 0) -> None:
        self.written = 0
        self._rate = bytes_per_s
        self._free_at = 0.0
        self._lock = threading.Lock()

    @property
    def step(self) -> int:
        """Most bytes to write in one go."""
        return max(4096, self._rate // _PIECES_A_S) if self._rate else _UNLIMITED_STEP

    def wrote(self, count: int) -> None:
        """Account for ``count`` bytes; blocks while they are more than the limit allows."""
        with self._lock:
            self.written += count
            now = time.monotonic()
            if self._rate:
                self._free_at = max(self._free_at, now) + count / self._rate
            wait_s = self._free_at - now
        if self._rate:
            sleep(wait_s)


UNLIMITED = Pace()
Chunk = bytes | bytearray | memoryview
_SMALL_BYTES = 64 << 10
_JOINED_BYTES = 1 << 20


def make_private_folder(path: Path) -> None:
    """Make ``path`` and its parents; each folder that is made here is 0700."""
    try:
        _make_folder(path)
    except OSError as error:
        raise _unmade(path, error) from error


def make_store_folder(path: Path) -> None:
    """Make ``path`` and its parents in a store: private, or the group's where it shares the store."""
    try:
        _make_like_parent(path)
    except OSError as error:
        raise _unmade(path, error) from error


def _make_like_parent(path: Path) -> None:
    if path.is_dir():
        return
    if not path.parent.is_dir():
        if path.parent == path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        _make_like_parent(path.parent)
    if not is_shared(path.parent):
        path.mkdir(mode=0o700, exist_ok=True)
        return
    with contextlib.suppress(FileExistsError):  # somebody else was faster
        path.mkdir(mode=0o770)
        if not _has_default_acl(path.parent):
            path.chmod(SHARED_FOLDER)


SHARED_FOLDER, SHARED_FILE = 0o2770, 0o660
_SHARED_BITS = stat.S_ISGID | stat.S_IWGRP


def is_shared(folder: Path) -> bool:
    """Tell if what is made in ``folder`` is its group's; raises OSError."""
    return os.stat(folder).st_mode & _SHARED_BITS == _SHARED_BITS


def _has_default_acl(folder: Path) -> bool:
    try:
        return bool(os.getxattr(folder, "system.posix_acl_default"))
    except OSError:
        return False


def open_new(path: Path, flags: int) -> int:
    """A descriptor of a file that may be made here, with the mode that its folder asks for; raises OSError."""
    if not is_shared(path.parent):
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, SHARED_FILE)
    facts = os.fstat(descriptor)
    is_own = facts.st_uid == os.geteuid()
    if is_own and stat.S_IMODE(facts.st_mode) != SHARED_FILE and not _has_default_acl(path.parent):
        os.fchmod(descriptor, SHARED_FILE)
    return descriptor


def _unmade(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot make the folder {path}: {error.strerror}", hint=_MEND)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:  # mkdir(parents=True) would make the parents by the umask alone
        if path.parent == path:
            raise
        _make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


_MEND = "check the path, its owner and the free space, or set JUPYTER_GPU_STORE (JUPYTER_GPU_HOME) elsewhere"
_FULL = "make room there (`jupyter gpu gc --dry-run` says what it would free), or set JUPYTER_GPU_STORE elsewhere"


def write_atomic(
    path: Path,
    chunks: Iterable[Chunk],
    *,
    durable: bool = True,
    name_durable: bool = True,
    size_bytes: int | None = None,
    pace: Pace = UNLIMITED,
) -> int:
    """Write ``chunks`` as the file ``path`` in one step and return its size in bytes.

    It is private, or its folder's group's where that is shared.

    Parameters
    ----------
    durable
        The content is on the disk when this returns.
    name_durable
        False where the next durable file of the folder is soon enough for the name of this one.
    size_bytes
        How much it will be, for the message of a full disk.
    pace
        How fast it may be written.

    Raises
    ------
    StoreError
        The filesystem refuses: names path and bytes. Nothing of the attempt is left then.
    """
    temp = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    written = 0
    try:
        descriptor = open_new(temp, os.O_WRONLY | os.O_EXCL)
        try:
            for chunk in _pieces(chunks):
                written += _write_all(descriptor, chunk, pace)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temp, path)
        if durable and name_durable:
            sync_to_disk(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)
        raise error_of_write(path, error, size_bytes, after=written) from error
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    return written


def error_of_write(path: Path, error: OSError, size_bytes: int | None = None, *, after: int = 0) -> StoreError:
    """The error to raise when writing failed: path and reason, and where the disk is full the bytes needed and free."""
    parts = [f"cannot write {path}", f" (after {after} bytes)" if after else "", f": {error.strerror}"]
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    if is_full:
        needed = f"{format_bytes(size_bytes)} are needed, " if size_bytes is not None else ""
        parts.append(f" ({needed}{_free(path)} are free)")
    return StoreError("".join(parts), hint=_FULL if is_full else _MEND)


def _free(path: Path) -> str:
    for folder in path.parents:
        with contextlib.suppress(OSError):
            facts = os.statvfs(folder)
            return format_bytes(facts.f_bavail * facts.f_frsize)
    return "unknown"


def _pieces(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Small chunks joined: ten thousand names are not twenty thousand system calls."""
    joined = bytearray()
    for chunk in chunks:
        if len(chunk) < _SMALL_BYTES:
            joined += chunk
            if len(joined) < _JOINED_BYTES:
                continue
            chunk = b""
        if joined:
            yield joined
            joined = bytearray()
        if chunk:
            yield chunk
    if joined:
        yield joined


def _write_all(descriptor: int, chunk: Chunk, pace: Pace) -> int:
    view = memoryview(chunk).cast("B")
    done = 0
    while done < len(view):
        count = os.write(descriptor, view[done : done + pace.step])
        pace.wrote(count)
        done += count
    return done


def sync_to_disk(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_plain(path: Path, flags: int = 0) -> int:
    """A descriptor for reading a plain file; raises OSError, also for anything that is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file", str(path))


def read_plain(path: Path) -> bytes:
    """All of a plain file; raises OSError."""
    with os.fdopen(open_plain(path), "rb") as file:
        return file.read()
