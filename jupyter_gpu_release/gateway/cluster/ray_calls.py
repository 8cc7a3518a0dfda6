"""Questions to Ray's control store, with limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import ray

from ...errors import ClusterError


def last_line(error: Exception) -> str:
    """The last line with text of Ray's long messages, which is the one that says what happened."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")
#: Ray answers within milliseconds; of its own accord it would try for 60 s
LIMIT_S = 10.0
#: a gateway that starts has nobody to keep waiting yet, and cannot go on without the answer
START_S = 60.0
_THREADS = 8
#: what Ray's calls raise when the control store is away or refuses
FAULTS = (ray.exceptions.RayError, RuntimeError, ValueError, OSError)


async def awaited(reference: Any) -> Any:
    """The answer of a remote call: Ray's references can be awaited, and ``asyncio`` wants a coroutine."""
    return await reference


class RayCalls:
    """Threads of their own: neither a slow filesystem's nor anybody else's work is before ours."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray")

    def begin(
        self, question: Callable[_Asked, _Answer], *arguments: _Asked.args, **named: _Asked.kwargs
    ) -> asyncio.Future[_Answer]:
        """Ask, and have the answer in a future, without a limit."""
        return asyncio.get_running_loop().run_in_executor(self._threads, lambda: question(*arguments, **named))

    async def ask(
        self, question: Callable[_Asked, _Answer], *arguments: _Asked.args, **named: _Asked.kwargs
    ) -> _Answer:
        """Ask and wait; raises :class:`ClusterError` when Ray fails, or does not answer in time."""
        return await self.answer(self.begin(question, *arguments, **named))

    async def answer(self, asked: asyncio.Future[_Answer], limit_s: float | None = None) -> _Answer:
        """Wait for what was begun; raises :class:`ClusterError` as :meth:`ask` does."""
        limit_s = LIMIT_S if limit_s is None else limit_s
        try:
            return await asyncio.wait_for(asked, limit_s)
        except TimeoutError as error:
            raise ClusterError(f"Ray did not answer within {limit_s:g} s") from error
        except FAULTS as error:
            raise ClusterError(f"Ray failed: {last_line(error)}") from error

    def close(self) -> None:
        """End the threads that have nothing to do."""
        self._threads.shutdown(wait=False, cancel_futures=True)
