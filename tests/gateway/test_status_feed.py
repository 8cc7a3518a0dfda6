"""Waiting for the next change of the status, and the progress line in it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from jupyter_gpu_release.gateway.runs.events import EventTail, progress_of
from jupyter_gpu_release.gateway.status_feed import StatusFeed
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.wire import encode


def test_changes_close_together_are_told_once_and_none_is_forgotten() -> None:
    async def scene() -> None:
        board = StatusFeed()
        first = board.serial
        await board.after("of an earlier life", 60)  # another serial: answered at once
        waiters = [asyncio.ensure_future(board.after(first, 60)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(waiter.done() for waiter in waiters)
        for _ in range(1000):
            board.note_change()
        await asyncio.gather(*waiters)
        second = board.serial
        assert second != first
        board.note_change()
        assert board.serial == second  # it is due, and told a little later
        await board.after(second, 60)
        third = board.serial
        assert third not in (first, second)
        await board.after(third, 0.01)  # nothing comes
        assert board.serial == third

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ([("stdout", "Epoch 1\nEpoch 2\n")], "Epoch 2"),
        ([("stdout", "ready\n"), ("stderr", "\r 10%|#   | 1/10"), ("stderr", "\r 20%|##  | 2/10")], "20%|##  | 2/10"),
        ([("stderr", "\r100%|####| 10/10\n"), ("stdout", "\x1b[32mloss 0.2\x1b[0m\n\n")], "loss 0.2"),
        # a bar below a bar, as tqdm draws them
        ([("stderr", "outer 1/2\n\rinner 1/3\x1b[A\n\rinner 2/3\x1b[A\n\rinner 3/3")], "inner 3/3"),
        ([("stdout", "x" * 100_000 + "\n"), ("stdout", "end\n")], "end"),
        ([("stdout", "y" * 500)], "y" * 160),
    ],
)
def test_the_progress_line_is_what_a_reader_sees_last(texts: list[tuple[str, str]], shown: str) -> None:
    tail = EventTail("r")
    for number, (name, text) in enumerate(texts, start=1):
        tail.add([msgspec.Raw(encode(Event(number, 0.0, "stream", {"name": name, "text": text})))])
    assert progress_of(tail) == shown
    # what others than rank 0 and displays say is no progress; the line stays
    for number, event in enumerate(
        (Event(0, 0.0, "display", {"data": {}}), Event(0, 0.0, "stream", {"text": "no", "rank": 1}))
    ):
        tail.add([msgspec.Raw(encode(msgspec.structs.replace(event, n=len(texts) + number + 1)))])
    assert progress_of(tail) == shown
