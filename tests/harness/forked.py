"""Work in a fork of the test's process: it may be killed in the middle, and costs no start of an interpreter."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any


def forked(work: Callable[[], object]) -> int:
    """Run ``work`` in a fork. 0: it came to its end; negative: the signal that killed it; 1: an error (printed)."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_before_change(number: int, work: Callable[[], object], changes: tuple[str, ...]) -> int:
    """As :func:`forked`, with SIGKILL ahead of the ``number``-th change of the filesystem (0: the first).

    ``changes``: names of audit events; files that are opened to be created count, too.
    """
    left = number

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in changes or (event == "open" and arguments[2] & os.O_CREAT):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def watched() -> None:
        sys.addaudithook(watch)
        work()

    return forked(watched)
