"""Work that nobody waits for: its failures are logged, and it is not lost to the garbage collector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

log = logging.getLogger(__name__)
#: until what has failed is tried again
_AGAIN_S = 0.5


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
