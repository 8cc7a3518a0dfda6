"""Work on a store that hangs: callers go on in time, and what was begun is done when it answers again."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from jupyter_gpu_release.errors import StoreSilentError
from jupyter_gpu_release.host.threads import StoreThreads


def test_a_store_that_hangs_holds_up_its_own_threads_only() -> None:
    hangs, done = threading.Event(), []

    def work(number: int) -> int:
        hangs.wait(60)
        done.append(number)
        return number

    async def live() -> None:
        threads = StoreThreads(most=3)
        with pytest.raises(StoreSilentError, match="has not answered"):
            await threads.run(work, 0, limit_s=0.01)
        assert threads.has_late_answer
        later = [threads.begin(work, number) for number in range(1, 20)]  # more than there are threads
        assert await asyncio.to_thread(lambda: "free") == "free"
        hangs.set()
        await threads.wait_until_answered()
        assert await asyncio.gather(*later) == list(range(1, 20))
        assert not threads.has_late_answer

    asyncio.run(live())
    assert sorted(done) == list(range(20))


def test_errors_are_the_caller_s() -> None:
    async def live() -> None:
        with pytest.raises(ZeroDivisionError):
            await StoreThreads().run(divmod, 1, 0)
        with pytest.raises(SystemExit):  # such a one ends no thread either: who waits would wait for ever
            await StoreThreads().run(sys.exit)

    asyncio.run(live())
