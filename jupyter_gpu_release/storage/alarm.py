"""Has the main thread raise a StoreError about files that could not be read to their end.

A signal's handler cannot raise where it is (a thread of OpenMP, the middle of a memcpy), so a helper thread asks the
interpreter to run a handler on the main thread, again and again until it could raise there.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
import types
from pathlib import Path

from ..core.run import is_run_id
from ..errors import StoreError

_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


class Alarm:
    """``number``: the signal whose Python handler is used; ``inside``: code that nothing may be raised in."""

    def __init__(self, number: signal.Signals, inside: types.CodeType) -> None:
        self._number = number
        self._inside = inside
        self._lost: dict[tuple[Path, Path], None] = {}
        self._is_interrupt = False
        self._is_running = False

    def listen(self) -> None:
        """Take the Python-level handler, where that is possible (in the main thread)."""
        with contextlib.suppress(ValueError):
            signal.signal(self._number, self._on_main_thread)

    def note(self, graph: Path, file: Path) -> None:
        """``file``, which ``graph`` refers to, could not be read."""
        self._lost[graph, file] = None
        self._start()

    def interrupt(self) -> None:
        """A KeyboardInterrupt struck where it could not be raised."""
        self._is_interrupt = True
        self._start()

    def _start(self) -> None:
        if not self._is_running:
            self._is_running = True
            _thread.start_new_thread(self._ask, ())

    def _ask(self) -> None:
        wait_s = _FIRST_WAIT_S
        while self._lost or self._is_interrupt:
            if self._is_interrupt and not self._is_inside(sys._current_frames().get(_main_thread())):
                self._is_interrupt = False
                _thread.interrupt_main(signal.SIGINT)
            if self._lost and signal.getsignal(self._number) != self._on_main_thread:
                self._say(self._take())  # nobody listens on the main thread
            if self._lost:
                _thread.interrupt_main(self._number)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._is_running = False
        if self._lost:  # came meanwhile
            self._start()

    def _on_main_thread(self, _number: int, frame: types.FrameType | None) -> None:
        if not self._lost or self._is_inside(frame):
            return
        error = self._take()
        if _is_between_cells(frame):
            self._say(error)
            return
        raise error

    def _is_inside(self, frame: types.FrameType | None) -> bool:
        while frame is not None and frame.f_code is not self._inside:
            frame = frame.f_back
        return frame is not None

    def _take(self) -> StoreError:
        lost, self._lost = self._lost, {}
        return _error(list(lost))

    @staticmethod
    def _say(error: StoreError) -> None:
        sys.stderr.write(f"StoreError: {error}\n")


def _main_thread() -> int:
    return threading.main_thread().ident or 0


def _error(lost: list[tuple[Path, Path]]) -> StoreError:
    graph, file = lost[0]
    run = graph.parent.name if is_run_id(graph.parent.name) else ""
    others = f" (and {len(lost) - 1} more files)" if len(lost) > 1 else ""
    of_run = f" of run {run} ({graph.name})" if run else ""
    text = (
        f"{file}{of_run} cannot be read any more (removed, cut short, or its filesystem is gone){others}; "
        "what was not read of it before is zeros now"
    )
    again = f"`%gpu_attach {run}` when the filesystem is back, or " if run else ""
    return StoreError(text, mend=f"do not use these values: {again}run the cell that made them again")


def _is_between_cells(frame: types.FrameType | None) -> bool:
    """Whether this is a notebook's kernel that runs no cell: raising would end its event loop."""
    if "ipykernel.kernelapp" not in sys.modules:
        return False
    while frame is not None:
        if frame.f_code.co_name == "run_code" and "interactiveshell" in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return True
