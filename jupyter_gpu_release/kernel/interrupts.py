"""SIGINT counted instead of raised; interrupts that come late.

ipykernel lets them raise there, catches them, and never sends the reply: the cell stays busy for ever (measured: in one
of ten cells whose stop button was pressed three times). There is nothing left to interrupt, so they are ignored;
ipykernel itself sets the handler anew once the reply is sent.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_RUN_CELL = "run_cell"
_IPYTHON = "IPython.core.interactiveshell"


class LateInterrupts:
    """Ignores them in this shell, from now on."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        if getattr(shell, "kernel", None) is not None:
            shell.events.register("post_run_cell", self._after)

    def end(self) -> None:
        """Leave them to ipykernel again."""
        if self._after in self._shell.events.callbacks["post_run_cell"]:
            self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, _result: object = None) -> None:
        if threading.current_thread() is not threading.main_thread():  # a subshell's cell: it gets none
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler and _is_outermost():
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _is_outermost() -> bool:
    """Tell if this is the end of the cell that was sent, and not of one that a cell runs."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None:
        count += frame.f_code.co_name == _RUN_CELL and frame.f_globals.get("__name__") == _IPYTHON
        frame = frame.f_back
    return count == 1


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
def hold_interrupts() -> Iterator[None]:
    """Context in which an interrupt waits until the end: for imports, of which a broken one can do harm later."""
    with Interrupts() as interrupts:
        yield
    if interrupts.count:
        raise KeyboardInterrupt
