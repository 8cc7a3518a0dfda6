"""Work that nobody waits for: its failures are logged, and it is not lost to the garbage collector."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)
#: until what has failed is tried again
_AGAIN_S = 0.5
#: whoever begins a look waits so long for it; looks take this share of the time at most
_PATIENCE_S, _SHARE = 0.1, 0.02


class BackgroundWork:
    """Tasks of one event loop."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background, its failures logged."""
        task = asyncio.get_event_loop().create_task(work)  # an actor begins some before its loop runs
        self.tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def until_done(self, work: Callable[..., Coroutine[Any, Any, None]], *of_what: Any) -> None:
        """The same for what must not be left undone: after a failure it is tried again."""
        self.spawn(work(*of_what)).add_done_callback(partial(self._try_again, work, of_what))

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task failed", exc_info=error)

    def _try_again(
        self, work: Callable[..., Coroutine[Any, Any, None]], of_what: tuple[Any, ...], done: asyncio.Task[None]
    ) -> None:
        if not done.cancelled() and done.exception() is not None:
            done.get_loop().call_later(_AGAIN_S, self.until_done, work, *of_what)


class LastLook(Generic[T]):
    """Cache of what takes long to find out: it is looked at when somebody asks and the last look is older than
    ``fresh_s``.

    ``found``: what is told before the first look. A look that fails is logged, and the one before is told.
    """

    def __init__(self, look: Callable[[], Awaitable[T]], fresh_s: float, found: T) -> None:
        self._look = look
        self._fresh_s = fresh_s
        self._found = found
        self._again_s = float("-inf")
        self._spawn = BackgroundWork().spawn

    async def newest(self) -> T:
        """As of a look that takes a moment, or of the one before."""
        if time.monotonic() >= self._again_s:
            self._again_s = float("inf")
            await asyncio.wait([self._spawn(self._find())], timeout=_PATIENCE_S)
        return self._found

    async def _find(self) -> None:
        began_s = time.monotonic()
        try:
            self._found = await self._look()
        finally:
            now_s = time.monotonic()
            self._again_s = now_s + max(self._fresh_s, (now_s - began_s) / _SHARE)
