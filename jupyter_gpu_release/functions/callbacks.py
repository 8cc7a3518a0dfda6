"""Calls ``add_done_callback``'s functions: on a thread of its own, since they may launch and wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger(__name__)


class Callbacks:
    """One after the other, in the order in which their runs ended; the thread begins with the first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], object]) -> None:
        """Have it called soon; what it raises is logged."""
        self._calls.put(function)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a fork has none
                self._thread = threading.Thread(target=self._run, name="gpu-callbacks", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            call_logged(self._calls.get())


def call_logged(function: Callable[[], object]) -> None:
    """Call it; what it raises is logged, as ``concurrent.futures`` does."""
    try:
        function()
    except Exception:  # the user's own
        log.exception("a done callback of a launched function failed")


CALLBACKS = Callbacks()
