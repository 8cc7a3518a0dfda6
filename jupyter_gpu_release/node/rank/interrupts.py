"""Interrupts strike the cell's own statements, and nothing else: neither earlier or later, nor where Python drops them.

It does that in a finaliser or a weak reference's callback (each import statement has some).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

#: by then the callback is over, and the cell's own code goes on
_AGAIN_S = 0.01


class InterruptGate:
    """Open while the cell's own statements run; what comes before strikes at the first, what comes after is too late.

    Blocking the signal alone does not do: another thread takes it then (a progress bar's, a DataLoader's), and Python
    runs the handler on the main thread all the same, in the middle of whatever that does.
    """

    def __init__(self) -> None:
        self.is_open = False
        #: handles the signal while the gate is open: Python's own, as in a kernel, until the cell sets another
        self.handler: Any = signal.default_int_handler
        self._has_come = False

    def note_interrupt(self, *_: object) -> None:
        """An interrupt has come while the gate is closed."""
        self._has_come = True

    def open(self) -> None:
        """Let interrupts in; raises the one that has come."""
        self.is_open = True
        signal.signal(signal.SIGINT, self.handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if self._has_come:
            self._has_come = False
            raise KeyboardInterrupt

    def close(self) -> None:
        """Keep them out."""
        if self.is_open:
            self.handler = signal.signal(signal.SIGINT, self.note_interrupt)
            self.is_open = False
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def repeat_dropped_interrupts() -> None:
    """Without this such a cell would go on as if nobody had interrupted it, and be killed at the end of its grace."""
    shown = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            shown(dropped)
            return
        is_sent = False
        while not is_sent:
            try:
                _interrupt_soon()
                is_sent = True
            except KeyboardInterrupt:  # the next one, and here it would be dropped as well
                continue

    sys.unraisablehook = hook


def _interrupt_soon() -> None:
    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    # the new thread inherits this, so the interrupt strikes the main one
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        again.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
