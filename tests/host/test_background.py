"""Work that nobody waits for: what fails is logged, and tried again where it must be done."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_gpu_release.host import background
from jupyter_gpu_release.host.background import BackgroundWork, LastLook


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


@pytest.mark.asyncio
async def test_a_look_is_made_when_somebody_asks_and_the_last_one_is_old(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_SHARE", float("inf"))
    looks: list[int] = []

    async def look() -> int:
        looks.append(1)
        if len(looks) == 2:
            raise OSError("it hangs")
        return len(looks)

    always, seldom = LastLook(look, 0.0, 0), LastLook(look, 3600.0, 0)
    assert [await always.newest() for _ in range(3)] == [1, 1, 3]
    assert "it hangs" in caplog.text
    assert [await seldom.newest() for _ in range(3)] == [4, 4, 4]


@pytest.mark.asyncio
async def test_nobody_waits_for_a_look_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PATIENCE_S", 0.0)
    may_go, looks = asyncio.Event(), []

    async def look() -> int:
        looks.append(1)
        await may_go.wait()
        return 7

    last = LastLook(look, 3600.0, 0)
    assert [await last.newest(), await last.newest()] == [0, 0]
    may_go.set()
    async with asyncio.timeout(30):
        while await last.newest() != 7:
            await asyncio.sleep(0)
    assert looks == [1]
