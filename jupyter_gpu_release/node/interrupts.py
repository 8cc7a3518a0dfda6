"""Interrupts that Python drops: in a finaliser or a weak reference's callback (each import statement has some)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

#: by then the callback is over, and the cell's own code goes on
_AGAIN_S = 0.01


def strike_again_where_dropped() -> None:
    """Without this such a cell would go on as if nobody had interrupted it, and be killed at the end of its grace."""
    shown = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            shown(dropped)
            return
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        # the new thread inherits this, so the interrupt strikes the main one
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            again.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    sys.unraisablehook = hook
