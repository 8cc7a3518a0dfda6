"""Conditions and events as those of ``threading``, whose lock an interrupt cannot leave held.

``threading.Condition.__enter__`` is a Python function: a KeyboardInterrupt that strikes as it returns leaves the lock
held for ever, and the next one to notify, a thread of a session, waits for it as long. That of a lock is C.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable


class InterruptibleCondition(_thread.RLock, threading.Condition):  # type: ignore[misc]  # both have `acquire` and `release`
    """A condition that is its own lock."""

    # as a lock has them for its condition
    _is_owned: Callable[[], bool]
    _acquire_restore: Callable[[tuple[int, int]], None]

    def __init__(self) -> None:
        threading.Condition.__init__(self, self)

    def wait(self, timeout: float | None = None) -> bool:
        """As that of ``threading``."""
        try:
            return threading.Condition.wait(self, timeout)
        finally:
            if not self._is_owned():  # it struck as the lock had been given back, before there was a wait to end
                self._acquire_restore((1, threading.get_ident()))


class InterruptibleEvent(threading.Event):
    """An event for the thread that interrupts strike."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = InterruptibleCondition()
