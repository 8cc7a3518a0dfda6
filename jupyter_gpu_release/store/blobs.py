"""Content-addressed large buffers.

A blob is whole or not there: written as ``<root>/tmp/…``, fsynced, then linked to its name, and its folder fsynced.
Any number of processes and machines may put the same content at once; the first one's file stays (on NFS a file that
is replaced would be pulled away from those who have it mapped).

Who puts a known blob writes nothing, but touches it: collection spares what was touched lately, because the run that
will refer to it may not be written yet. :meth:`BlobStore.remove_blob` moves a blob aside, looks at its time again and
brings it back if it was touched, so a blob that ``put_buffer`` has touched and still found cannot go.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import StoreError
from . import ownership
from .digests import digest_of, is_digest, new_hasher
from .files import error_of_write, is_shared, make_store_folder, open_new, open_plain, sync_to_disk
from .mapped.mapping import GraphMap, mapping_at
from .mapped.memory import start_write_out

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
    total, piece = new_hasher(), bytearray(_PIECE_BYTES)
    while count := os.readv(descriptor, [piece]):
        total.update(memoryview(piece)[:count])
    return str(total.hexdigest())


_STEP = 8 << 20
#: blobs of up to this size are read ahead as a whole when they are opened; of larger ones only what is touched
PREFETCH_BYTES = 64 << 20
_WRITERS = 4
#: while others are still being written, those that are there are touched again: the grace of collection is an hour
_KEEP_S = 600.0
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class BlobInfo(NamedTuple):
    """One blob as it lies there. ``touched_s``: when it was last put, by the filesystem's clock."""

    digest: str
    bytes: int
    touched_s: float


class BlobStore:
    """The blobs below ``root``. ``pace``: called with the bytes of each piece that was written (to slow writing)."""

    def __init__(self, root: Path, *, pace: Callable[[int], None] | None = None) -> None:
        self.root = root
        self._temp = root / "tmp"
        self._pace = pace

    def path_of(self, digest: str) -> Path:
        """The path of the blob with this digest; raises :class:`StoreError` for what is no digest."""
        if not is_digest(digest):
            raise StoreError(f"{digest!r} is not the digest of a blob", hint="the file that names it was altered")
        return self.root / digest[:2] / digest

    def has(self, digest: str) -> bool:
        """Tell if there is a file for this digest."""
        return self.path_of(digest).exists()

    # ---------------------------------------------------------------------------------- writing
    def put_buffer(self, buffer: Any, *, durable: bool = True) -> str:
        """Have the content of ``buffer`` in the store; returns its digest.

        The name is that of the bytes that were written, also when another thread changes the buffer meanwhile.
        Raises :class:`StoreError` with path, bytes needed and bytes free; then nothing of the attempt is left.
        """
        view = memoryview(buffer).cast("B")
        digest = _digest_by_mapping(view) or digest_of(view)
        if self._refresh(digest, len(view), durable=durable):
            return digest
        return self._write(view, durable=durable)

    def put_buffers(self, buffers: Iterable[Any], *, durable: bool = True) -> list[str]:
        """Put several, some at a time (each waits for the disk)."""
        waiting = list(buffers)
        if len(waiting) < 2:
            return [self.put_buffer(buffer, durable=durable) for buffer in waiting]
        with ThreadPoolExecutor(_WRITERS) as pool:
            tasks = [pool.submit(self.put_buffer, buffer, durable=durable) for buffer in waiting]
            try:
                while wait(tasks, timeout=_KEEP_S, return_when=FIRST_EXCEPTION).not_done:
                    self.touch_blobs([task.result() for task in tasks if task.done()])
                return [task.result() for task in tasks]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def touch_blobs(self, digests: Iterable[str]) -> list[str]:
        """Keep blobs from being collected for another while; returns those that are gone."""
        gone = []
        for digest in digests:
            try:
                os.utime(self.path_of(digest))
            except FileNotFoundError:
                gone.append(digest)
            except OSError as error:
                raise error_of_write(self.path_of(digest), error) from error
        return gone

    def _refresh(self, digest: str, length: int, *, durable: bool) -> bool:
        """Touch a blob that is there; False when it is not, or is not what its name says."""
        path = self.path_of(digest)
        try:
            facts = os.stat(path, follow_symlinks=False)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size != length:
                return False
            _check_owner(path, facts)
            os.utime(path)
            if durable:  # its writer may not have asked for that, or died before its folder was safe
                sync_to_disk(path)
                sync_to_disk(path.parent)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise error_of_write(path, error, length) from error
        return True

    def _write(self, view: memoryview, *, durable: bool) -> str:
        make_store_folder(self._temp)
        temp = self._temp / f"{secrets.token_hex(8)}.tmp"
        try:
            descriptor = open_new(temp, os.O_RDWR | os.O_EXCL)
            try:
                self._fill(descriptor, view, durable=durable)
                if not is_shared(self._temp):  # whoever puts the same content touches it, and needs the right to
                    os.fchmod(descriptor, 0o400)
                digest = synced_digest(descriptor, len(view), durable=durable)
            finally:
                os.close(descriptor)
            self._name(temp, digest, len(view), durable=durable)
        except OSError as error:
            _forget(temp)  # before the free bytes are counted
            raise error_of_write(temp, error, len(view)) from error
        finally:
            _forget(temp)
        return digest

    def _fill(self, descriptor: int, view: memoryview, *, durable: bool) -> None:
        at = 0
        while at < len(view):
            done = os.write(descriptor, view[at : at + _STEP])
            if durable:
                start_write_out(descriptor, at, done)
            at += done
            if self._pace is not None:
                self._pace(done)

    def _name(self, temp: Path, digest: str, length: int, *, durable: bool) -> None:
        path = self.path_of(digest)
        is_new = not path.parent.exists()
        make_store_folder(path.parent)
        try:
            os.link(temp, path)
        except FileExistsError:
            if self._refresh(digest, length, durable=durable):
                return
            os.replace(temp, path)  # it was damaged
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.replace(temp, path)
        if durable:
            sync_to_disk(path.parent)
            if is_new:
                sync_to_disk(self.root)

    # ---------------------------------------------------------------------------------- reading
    def map_blob(self, digest: str, length: int, *, used_by: Path | None = None) -> GraphMap:
        """Map a blob private and writable; nothing is read yet.

        ``used_by``: the graph file that refers to it, for messages. Raises :class:`StoreError` when it is missing,
        of another length, or another user's.
        """
        path = self.path_of(digest)
        try:
            descriptor = open_plain(path, os.O_NOFOLLOW)
        except OSError as error:
            raise _unreadable(path, error, used_by) from error
        try:
            facts = os.fstat(descriptor)
            _check_owner(path, facts)
            if facts.st_size != length:
                raise damaged_error(path, f"it has {facts.st_size} bytes instead of {length}")
            if length <= PREFETCH_BYTES:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            else:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            return GraphMap.of(path, descriptor, digest=digest, used_by=used_by)
        except OSError as error:
            raise _unreadable(path, error, used_by) from error
        finally:
            os.close(descriptor)

    def verify_blob(self, digest: str) -> None:
        """Read a blob; raises :class:`StoreError` when it is missing or its content is another (then it is moved away:
        by its length, who makes the same content again would take it for whole).
        """
        path = self.path_of(digest)
        try:
            with os.fdopen(open_plain(path), "rb", buffering=0) as file:
                found, inode = read_digest(file.fileno()), os.fstat(file.fileno()).st_ino
        except OSError as error:
            raise _unreadable(path, error, None) from error
        if found != digest:
            self._move_away(path, inode)
            raise damaged_error(path, "its content is not what its name says")

    def _move_away(self, path: Path, inode: int) -> None:
        aside = self._temp / f"{path.name}.{secrets.token_hex(4)}.damaged"
        with contextlib.suppress(OSError, StoreError):  # a store that cannot be written
            make_store_folder(self._temp)
            os.rename(path, aside)
            if os.stat(aside).st_ino != inode:  # written anew meanwhile
                os.link(aside, path)

    # ------------------------------------------------------------------------------- collection
    def list_blobs(self) -> Iterator[BlobInfo]:
        """All blobs. What is being written or removed meanwhile may be missing."""
        for folder in sorted(self.root.glob("[0-9a-f][0-9a-f]")):
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if is_digest(entry.name):
                        with contextlib.suppress(FileNotFoundError):
                            facts = entry.stat(follow_symlinks=False)
                            yield BlobInfo(entry.name, facts.st_size, facts.st_mtime)

    def remove_blob(self, digest: str, *, untouched_since_s: float) -> bool:
        """Remove a blob that was last touched before ``untouched_since_s``; False when it was touched or is gone.

        The caller knows that no run refers to it.
        """
        path, aside = self.path_of(digest), self._temp / f"{digest}.{secrets.token_hex(4)}.gone"
        make_store_folder(self._temp)
        try:
            if os.stat(path).st_mtime >= untouched_since_s:
                return False
            os.rename(path, aside)
            if os.stat(aside).st_mtime >= untouched_since_s:
                with contextlib.suppress(FileExistsError):  # written anew meanwhile
                    os.link(aside, path)
                aside.unlink()
                return False
            aside.unlink()
        except FileNotFoundError:  # another gateway on this store removed it, or brought it back
            return False
        return True

    def sweep_temp(self, *, untouched_since_s: float) -> int:
        """Remove what writers and removers that were killed left; returns the bytes that were freed."""
        freed = 0
        for left in self._temp.glob("*.*"):
            with contextlib.suppress(FileNotFoundError):
                facts = left.stat()
                if facts.st_mtime < untouched_since_s:
                    left.unlink()
                    freed += facts.st_size
                elif left.suffix == ".gone":  # a remover was killed before it could bring it back
                    with contextlib.suppress(FileExistsError):
                        os.link(left, self.path_of(left.name.partition(".")[0]))
                    left.unlink()
        return freed


def _check_owner(path: Path, facts: os.stat_result) -> None:
    """Where a group shares the store, any of it may have put the same content first."""
    if facts.st_uid != os.geteuid() and not is_shared(path.parent):
        ownership.check_owner(path, facts, doing="used")


def _forget(temp: Path) -> None:
    with contextlib.suppress(OSError):
        temp.unlink(missing_ok=True)


def _digest_by_mapping(view: memoryview) -> str:
    """The digest of memory that is a whole mapped blob in which, says the kernel, no page was written to."""
    found = mapping_at(view)
    if found is None:
        return ""
    mapping, offset = found
    if offset or len(mapping) != len(view) or not mapping.is_untouched():
        return ""
    return mapping.digest


def _unreadable(path: Path, error: OSError, used_by: Path | None) -> StoreError:
    wanted = f", which {used_by} refers to" if used_by is not None else ""
    hint = "is the store mounted here? If the file was removed, run the cell again"
    return StoreError(f"cannot read {path}{wanted}: {error.strerror}", hint=hint)


def damaged_error(path: Path, why: str) -> StoreError:
    """The error for a file that is not what its writer wrote."""
    return StoreError(f"{path} is damaged: {why}", hint="run the cell again; look at the filesystem's health")
