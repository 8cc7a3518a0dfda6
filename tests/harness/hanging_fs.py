"""A filesystem that stops answering when told to: a folder, mounted a second time through FUSE.

As a program (``python hanging_fs.py FOLDER MOUNT GATE``) it serves the mount. While
the file GATE is there no call returns.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_MNT_DETACH = 2


class HangingStore:
    """``path`` is where it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.path, self._behind, self._gate = folder / "mounted", folder / "behind", folder / "gate"
        for made in (self.path, self._behind):
            made.mkdir()
        command = [sys.executable, __file__, str(self._behind), str(self.path), str(self._gate)]
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not os.path.ismount(self.path):
            assert self._server.poll() is None, "the FUSE server has ended"
            assert time.monotonic() < deadline, "not mounted within 60 s"
            time.sleep(0.01)

    @property
    def server_pid(self) -> int:
        """The process that answers."""
        return self._server.pid

    def hang(self) -> None:
        """No call returns from now on."""
        self._gate.touch()

    def answer(self) -> None:
        """Calls return again, those that waited too."""
        self._gate.unlink(missing_ok=True)

    def close(self) -> None:
        """End the server, which fails all calls that wait, and unmount."""
        self.answer()
        self._server.kill()
        self._server.wait()
        ctypes.CDLL(None).umount2(str(self.path).encode(), _MNT_DETACH)


@contextmanager
def hanging_store(folder: Path) -> Iterator[HangingStore]:
    """A mounted store that can be made to hang; unmounted on every way out."""
    reason = _why_not()
    if reason:
        pytest.skip(reason)
    store = HangingStore(folder)
    try:
        yield store
    finally:
        store.close()


def _why_not() -> str:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid() != 0:
        return "a store that hangs is tested with FUSE: this needs /dev/fuse and root"
    try:
        import fuse  # noqa: F401
    except (ImportError, OSError) as error:
        return f"a store that hangs is tested with FUSE: {error} (apt-get install fuse libfuse2)"
    return ""


def _serve(behind: str, mount: str, gate: str) -> None:
    from fuse import FUSE, Operations

    class Passthrough(Operations):  # type: ignore[misc]
        """Each call first waits for the gate."""

        def __call__(self, op: str, path: str, *args: Any) -> Any:
            while os.path.exists(gate):
                time.sleep(0.01)
            return getattr(self, op)(behind + path, *args)

        def access(self, path: str, mode: int) -> None:
            if not os.access(path, mode):
                raise PermissionError(13, "not allowed")

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            found = os.lstat(path)
            return {key: getattr(found, key) for key in dir(found) if key.startswith("st_")}

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *os.listdir(path)]

        def create(self, path: str, mode: int) -> int:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

        def open(self, path: str, flags: int) -> int:
            return os.open(path, flags & ~os.O_CREAT)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            return os.pwrite(fh, data, offset)

        def truncate(self, path: str, length: int, fh: int | None = None) -> None:
            os.truncate(path, length)

        def flush(self, path: str, fh: int) -> int:
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            return 0

        def release(self, path: str, fh: int) -> None:
            os.close(fh)

        def rename(self, old: str, new: str) -> None:
            os.rename(old, behind + new)

        def link(self, target: str, source: str) -> None:
            os.link(behind + source, target)

        def mkdir(self, path: str, mode: int) -> None:
            os.mkdir(path, mode)

        def rmdir(self, path: str) -> None:
            os.rmdir(path)

        def unlink(self, path: str) -> None:
            os.unlink(path)

        def chmod(self, path: str, mode: int) -> None:
            os.chmod(path, mode)

        def utimens(self, path: str, times: Any = None) -> None:
            os.utime(path, times)

        def statfs(self, path: str) -> dict[str, Any]:
            found = os.statvfs(path)
            return {key: getattr(found, key) for key in dir(found) if key.startswith("f_") and key != "f_fsid"}

    FUSE(Passthrough(), mount, foreground=True, nothreads=False)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
