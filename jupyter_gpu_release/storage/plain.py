"""Opening files that others may have put there: a pipe in a file's place must not make a reader wait for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


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
