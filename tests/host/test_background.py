"""Work that nobody waits for: what fails is logged, and tried again where it must be done."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_gpu_release.host import background
from jupyter_gpu_release.host.background import BackgroundWork


def test_what_must_not_be_left_undone_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_AGAIN_S", 0.0)
    left: list[Exception] = [RuntimeError("first"), RuntimeError("second")]
    work = BackgroundWork()

    async def run() -> None:
        done = asyncio.Event()

        async def attempt(name: str) -> None:
            if left:
                raise left.pop()
            assert name == "results"
            done.set()

        work.until_done(attempt, "results")
        async with asyncio.timeout(30):
            await done.wait()

    asyncio.run(run())
    assert caplog.text.count("a background task failed") == 2
    assert not work.tasks
