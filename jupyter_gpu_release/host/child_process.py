"""A process that an event loop starts, and that ends with what it was started for."""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any


@contextlib.asynccontextmanager
async def child_process(
    command: tuple[str, ...], end: Callable[[Process], Awaitable[None]], **options: Any
) -> AsyncGenerator[Process]:
    """Start it with ``options`` of asyncio's; ``end`` is awaited in any case. Raises OSError if it cannot be started.

    A task that is cancelled while asyncio starts it would leave what the process has started itself by then.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, **options))
    try:
        yield await asyncio.shield(starting)
    finally:
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await end(starting.result())
