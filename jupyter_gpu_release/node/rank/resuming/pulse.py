"""The pulse of a restartable cell has its loops look up once a second, so that a round itself costs next to nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: between two looks, if nothing is due earlier
_PAUSE_S = 1.0
_LEAST_PAUSE_S = 0.001


class Pulse:
    """A thread, while the cell's statements run.

    ``look_up`` asks for a look, which :meth:`note_answer` answers. ``on_silence`` is called when none came for
    ``most_s``.
    """

    def __init__(self, look_up: Callable[[], None], most_s: float, on_silence: Callable[[], None]) -> None:
        self._look_up = look_up
        self._most_s = most_s
        self._on_silence = on_silence
        self._due_s = float("inf")
        #: since when an answer is awaited
        self._asked_s: float | None = None
        self._is_over = False
        self._changed = threading.Event()

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._beat_forever, name="jgr-pulse", daemon=True)
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._is_over = True
        self._changed.set()
        self._thread.join()

    def set_due(self, due_s: float) -> None:
        """Have it look up then (of the monotonic clock), too."""
        self._due_s = due_s
        if due_s - time.monotonic() < _PAUSE_S:
            self._changed.set()

    def note_answer(self) -> None:
        """The cell is at a safe point."""
        self._asked_s = None

    def _beat_forever(self) -> None:
        while not self._is_over:
            due_s = self._due_s - time.monotonic() if self._asked_s is None else _PAUSE_S
            if self._changed.wait(min(_PAUSE_S, max(_LEAST_PAUSE_S, due_s))):
                self._changed.clear()
                if self._due_s > time.monotonic():
                    continue
            self._beat(time.monotonic())

    def _beat(self, now_s: float) -> None:
        if self._asked_s is None:
            self._asked_s = now_s
        elif now_s - self._asked_s > self._most_s:
            self._most_s = float("inf")
            self._on_silence()
        self._look_up()
