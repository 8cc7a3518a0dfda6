"""A value that is read by another thread, so that nobody waits for it longer than he wants to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from ...errors import GpuReleaseError

#: it is read again when it is older
FRESH_S = 2.0
#: an older one is not shown any more
KEPT_S = 30.0

T = TypeVar("T")


class Cached(Generic[T]):
    """A value that a thread reads anew when it is asked for and old."""

    def __init__(self, read: Callable[[], T], nothing: T) -> None:
        self._read = read
        self._nothing = nothing
        self._value, self._read_at = nothing, float("-inf")
        self._reading: threading.Event | None = None
        self._lock = threading.Lock()

    def get(self, patience_s: float) -> T:
        """The value; an older one, or nothing, where none is known within ``patience_s``."""
        with self._lock:
            if time.monotonic() - self._read_at < FRESH_S:
                return self._value
            done = self._reading
            if done is None:
                done = self._reading = threading.Event()
                threading.Thread(target=self._refresh, args=(done,), name="gpu-facts", daemon=True).start()
        done.wait(patience_s)
        with self._lock:
            return self._value if time.monotonic() - self._read_at < KEPT_S else self._nothing

    def _refresh(self, done: threading.Event) -> None:
        value = self._nothing
        try:
            value = self._read()
        except (GpuReleaseError, OSError, ValueError, TypeError, LookupError, AttributeError):
            pass  # no cluster, or something else than one: nothing is known of it
        finally:
            with self._lock:
                self._value, self._read_at, self._reading = value, time.monotonic(), None
            done.set()
