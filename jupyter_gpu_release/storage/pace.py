"""How fast a thread may write to the store (the operator's limit), and how far it has come."""

from __future__ import annotations

import threading
import time

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
            time.sleep(wait_s)


_local = threading.local()
_NO_LIMIT = Pace()


def keep(pace: Pace) -> None:
    """Have this thread write at ``pace`` from now on."""
    _local.pace = pace


def current() -> Pace:
    """The pace of this thread."""
    pace: Pace = getattr(_local, "pace", _NO_LIMIT)
    return pace
