"""A launched function's run as a future, without a cluster."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from jupyter_gpu_release.errors import RunLostError
from jupyter_gpu_release.functions.executor import FunctionExecutor
from jupyter_gpu_release.functions.future import RunFuture
from jupyter_gpu_release.protocol.runs import RunView


def _launched() -> RunFuture[Any]:
    return RunFuture(cast(FunctionExecutor, None), RunView("r", "", "running"), "f", lambda _: None)


def _end(launched: RunFuture[Any]) -> None:
    """As the session's thread does."""
    launched.give_up(RunLostError("gone"))


def test_asyncio_waits_for_the_first_of_them_and_leaves_nothing_behind() -> None:
    runs = [_launched() for _ in range(3)]

    async def wait() -> list[int]:
        early = await asyncio.wait(runs, timeout=0)
        threading.Thread(target=_end, args=[runs[1]]).start()
        first = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED, timeout=100)
        failed = await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION, timeout=100)  # it is over already
        assert first == failed == ({runs[1]}, {runs[0], runs[2]})
        return [len(group) for group in early]

    assert asyncio.run(wait()) == [0, 3]
    assert not any(run._waiting for run in runs)
    for run in runs:
        _end(run)  # the loop is closed


def test_other_callbacks_are_called_while_the_loop_is_busy() -> None:
    launched, called = _launched(), threading.Event()

    async def blocks() -> bool:
        launched.add_done_callback(lambda _: called.set())
        _end(launched)
        return called.wait(100)

    assert asyncio.run(blocks())
