"""SIGINT while a run is under way: counted, never raised in the middle of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Context in which interrupts are counted. Outside the main thread (subshells) there are none to count."""

    def __init__(self) -> None:
        self.count = 0
        self._previous: Any = None
        self._is_set = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
            self._is_set = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_set:
            signal.signal(signal.SIGINT, self._previous)
            self._is_set = False

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


@contextmanager
def held() -> Iterator[None]:
    """Context in which an interrupt waits until the end: for imports, of which a broken one can do harm later."""
    with Interrupts() as interrupts:
        yield
    if interrupts.count:
        raise KeyboardInterrupt
