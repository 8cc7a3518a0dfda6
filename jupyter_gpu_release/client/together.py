"""Threads that begin together, whatever strikes the one who begins them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping


class Together:
    """Daemon threads, by name what each does. A KeyboardInterrupt in the caller leaves all of them begun, or none."""

    def __init__(self, works: Mapping[str, Callable[[], None]]) -> None:
        self._works = works
        self._threads: list[threading.Thread] = []
        self._is_over = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Return when they have begun; once they have, or after :meth:`end`, nothing is done."""
        if self._threads or self._is_over:
            return
        starter = threading.Thread(target=self._begin_all, name="gpu-starter", daemon=True)  # nothing strikes that
        starter.start()
        starter.join()

    def _begin_all(self) -> None:
        with self._lock:
            if self._threads or self._is_over:
                return
            for name, work in self._works.items():
                thread = threading.Thread(target=work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    def end(self, timeout_s: float) -> None:
        """Wait for each (that was told to end), but not longer than ``timeout_s``; none begins any more."""
        with self._lock:
            self._is_over = True
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)
