"""Followers of a run that waits hear of its moves in the queue a few times a second, not at each grant."""

from __future__ import annotations

import asyncio

from jupyter_gpu_release.broker.runs import RunRecord
from jupyter_gpu_release.core.messages import RunRequest, RunView
from jupyter_gpu_release.core.resources import ResourceAsk


def test_many_moves_are_told_once_and_later_ones_again():
    async def moves() -> list[int]:
        record = RunRecord(RunView("r", "u", "queued"), 1, RunRequest("r", "s", ResourceAsk(), b""))
        told: list[int] = []
        heard = asyncio.Event()

        def watcher() -> None:
            told.append(record.view.position or 0)
            heard.set()

        record.watchers.add(watcher)
        for places in ((5, 4, 3), (2, 1)):
            heard.clear()
            for place in places:
                record.view = RunView("r", "u", "queued", position=place)
                record.wake_later()
            await asyncio.wait_for(heard.wait(), 30)
        return told

    assert asyncio.run(moves()) == [3, 1]
