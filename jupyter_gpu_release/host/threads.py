"""Threads for calls that may hang, and limits on waiting for them: what hangs holds up nothing else.

A call into a filesystem or a driver that has stopped answering returns when that answers again, if ever. In an event
loop's own executor a few such calls are enough to stop all that needs a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ..errors import StoreSilentError

T = TypeVar("T")
Acting = Callable[[Path, Callable[..., Any]], Callable[..., Any]]
#: a store that has not answered after this is taken to hang
ANSWER_S = 5.0
_MOST = 16


class DaemonThreads:
    """Threads that are begun when needed; the process ends without waiting for them.

    Methods are called on one event loop and never block. What is begun is carried out, however late.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = 0
        self._unfinished = 0

    def begin(self, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Carry out ``work`` in a thread; the future has what it returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._unfinished += 1
        if self._threads < min(self._unfinished, self._most):
            self._threads += 1
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        self._work.put(lambda: self._carry_out(loop, future, work, arguments))
        return future

    def _serve(self) -> None:
        while True:
            self._work.get()()

    def _carry_out(
        self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], work: Callable[..., T], arguments: Any
    ) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work(*arguments)
        except BaseException as raised:  # noqa: BLE001 - a thread's entry point: it is the caller's, who waits for it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._settle, future, result, error)

    def _settle(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class StoreThreads(DaemonThreads):
    """Up to 16 threads for work on a store."""

    def __init__(self, most: int = _MOST, *, acting: Acting | None = None) -> None:
        """``acting``: makes work of what is to be done for the owner of a path; None: all of it is this user's."""
        super().__init__(most, "jgr-store")
        self._acting = acting
        self._late: set[asyncio.Future[Any]] = set()

    @property
    def has_late_answer(self) -> bool:
        """Tell if somebody has waited in vain for an answer that has not come yet."""
        return bool(self._late)

    def begin(self, work: Callable[..., T], *arguments: Any, at: Path | None = None) -> asyncio.Future[T]:
        """As above. ``at``: done for the owner of what lies there, where users have stores of their own."""
        return super().begin(work if at is None or self._acting is None else self._acting(at, work), *arguments)

    def forget(self, future: asyncio.Future[Any]) -> None:
        """Nobody waits for what was begun any more."""
        self._late.add(future)
        future.add_done_callback(self._on_late_answer)

    async def run(
        self, work: Callable[..., T], *arguments: Any, at: Path | None = None, limit_s: float = ANSWER_S
    ) -> T:
        """Carry out ``work`` and wait for it; raises :class:`StoreError` when the store does not answer in time."""
        return await self.wait_for_answer(self.begin(work, *arguments, at=at), limit_s)

    async def wait_until_answered(self) -> None:
        """Return once all that somebody has waited for in vain has been answered after all."""
        while self._late:
            await asyncio.wait(self._late)

    async def wait_for_answer(self, future: asyncio.Future[T], limit_s: float = ANSWER_S) -> T:
        """Wait for what was begun; raises :class:`StoreError` when the store does not answer in time."""
        await asyncio.wait([future], timeout=limit_s)
        if not future.done():
            self.forget(future)
            raise StoreSilentError(
                f"the store has not answered for {limit_s:g} s", hint="look at its file server, and at the mount"
            )
        return future.result()

    def _on_late_answer(self, future: asyncio.Future[Any]) -> None:
        self._late.discard(future)
        if not future.cancelled():
            future.exception()  # nobody is left to hear of it
