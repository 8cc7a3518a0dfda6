"""The moments in which a kernel's names may change by themselves: before a cell, after it, and while none runs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any


class BetweenCells:
    """Calls ``act`` on the main thread before each cell, after it, and soon after :meth:`nudge` when none runs.

    Costs nothing until :meth:`begin`.
    """

    def __init__(self, shell: Any, act: Callable[[], None]) -> None:
        self._shell = shell
        self._act = act
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_begun = False
        #: cells can run cells
        self._depth = 0

    def begin(self) -> None:
        """Take part from now on; called by a cell that runs."""
        if self._has_begun or not _on_main_thread():
            return
        self._has_begun = True
        self._depth = 1
        with contextlib.suppress(RuntimeError):  # a terminal has no loop while a cell runs
            self._loop = asyncio.get_running_loop()
        self._shell.events.register("pre_run_cell", self._before)
        self._shell.events.register("post_run_cell", self._after)

    def end(self) -> None:
        """Take part no more."""
        if self._has_begun:
            self._has_begun = False
            self._shell.events.unregister("pre_run_cell", self._before)
            self._shell.events.unregister("post_run_cell", self._after)

    def nudge(self) -> None:
        """Say that there is something to do; called from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the kernel is ending
                self._loop.call_soon_threadsafe(self._while_idle)

    def _while_idle(self) -> None:
        if self._has_begun and self._depth == 0:
            self._act()

    def _before(self, _info: object = None) -> None:
        if not _on_main_thread():  # a subshell's cell
            return
        self._depth += 1
        if self._depth == 1:
            self._act()

    def _after(self, _result: object = None) -> None:
        if not _on_main_thread():
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0:
            self._act()


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
