"""An event loop whose timers have no more than asyncio promises for all loops: they can be cancelled (as uvloop's)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Timer:
    """A handle as ``call_at`` returns it."""

    def __init__(self, handle: asyncio.TimerHandle) -> None:
        self._handle = handle

    def cancel(self) -> None:
        self._handle.cancel()

    @property
    def _source_traceback(self) -> Any:  # asyncio's own, in debug mode
        return self._handle._source_traceback


class PlainLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop otherwise."""

    def call_at(self, *arguments: Any, **named: Any) -> Any:
        return Timer(super().call_at(*arguments, **named))


def run_plain(work: Coroutine[Any, Any, Any]) -> Any:
    """Like ``asyncio.run``."""
    with asyncio.Runner(loop_factory=PlainLoop) as runner:
        return runner.run(work)
