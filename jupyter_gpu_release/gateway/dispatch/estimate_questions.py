"""``EstimateQuestions``: users' questions about starts, answered in a thread that leaves the gateway its time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

from ...errors import TooManyRequestsError
from ...protocol.rest import EstimateDocument

_T = TypeVar("_T")
#: questions of one user that may wait for their answers
_MOST_ASKED = 4
#: an answer holds for so many times as long as it took
_KEPT = 5.0
#: after an answer nothing is worked out for so many times as long as that took
_RESTS = 1.0


class EstimateQuestions:
    """One question at a time, of each user one in the line, and the same one not anew as long as its answer holds.

    Methods are called on the gateway's loop.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="estimate")
        self._line = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._asked: Counter[str] = Counter()
        self._answers: dict[tuple[str, bytes], asyncio.Task[EstimateDocument]] = {}
        self._rests_until_s = 0.0

    async def in_thread(self, work: Callable[..., _T], *arguments: object) -> _T:
        """Run ``work`` in the one thread that there is for it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*arguments))

    async def answer(
        self, user: str, question: bytes, work: Callable[[], Awaitable[EstimateDocument]]
    ) -> EstimateDocument:
        """Answer a question by ``work`` when it is its turn, or as it was answered a moment ago.

        Raises :class:`TooManyRequestsError` when too many others of the same user wait.
        """
        key = (user, question)
        if key not in self._answers:
            if self._asked[user] >= _MOST_ASKED:
                raise TooManyRequestsError(
                    f"{user} asks about more than {_MOST_ASKED} starts at once", hint="wait for the answers"
                )
            self._asked[user] += 1
            self._answers[key] = asyncio.get_running_loop().create_task(self._work_out(key, work))
        return await asyncio.shield(self._answers[key])  # others may have asked the same

    async def _work_out(
        self, key: tuple[str, bytes], work: Callable[[], Awaitable[EstimateDocument]]
    ) -> EstimateDocument:
        user, kept_s = key[0], 0.0
        turn = self._turns.setdefault(user, asyncio.Lock())
        try:
            async with turn, self._line:
                await asyncio.sleep(max(0.0, self._rests_until_s - time.monotonic()))
                began_s = time.monotonic()
                found = await work()
                took_s = time.monotonic() - began_s
                self._rests_until_s, kept_s = time.monotonic() + _RESTS * took_s, _KEPT * took_s
            return found
        finally:
            self._asked -= Counter([user])
            asyncio.get_running_loop().call_later(kept_s, self._answers.pop, key, None)
