"""Moves in the queue: followers hear of them a few times a second, not at each grant, and the ledger not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plain_loop import run_plain

from jupyter_gpu_release.gateway.db.database import find_run, open_ledger
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
from jupyter_gpu_release.gateway.runs.live_runs import RunListener, RunTable
from jupyter_gpu_release.gateway.runs.manifests import Manifests
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView


class _Listener(RunListener):
    """Hears of runs, and does nothing."""


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
                record.notify_later(place)
            await asyncio.wait_for(heard.wait(), 30)
        return told

    assert asyncio.run(moves()) == [3, 1]
    assert run_plain(moves()) == [3, 1]


def test_what_is_told_soon_comes_before_what_may_wait():
    async def told() -> int:
        record = RunRecord(RunView("r", "u", "queued"), 1, RunRequest("r", "s", ResourceAsk(), b""))
        heard, count = asyncio.Event(), 0

        def watcher() -> None:
            nonlocal count
            count += 1
            heard.set()

        record.watchers.add(watcher)
        record.notify_later(1000)
        record.notify_soon()
        await asyncio.wait_for(heard.wait(), 30)
        return count

    assert asyncio.run(told()) == 1
    assert run_plain(told()) == 1, "on a loop whose timers do not tell when they are due"


def test_a_move_in_the_queue_is_no_write_and_the_next_change_takes_it_along(tmp_path: Path) -> None:
    engine = open_ledger(tmp_path / "home" / "ledger.sqlite")
    stored = []

    def look() -> None:
        with engine.connect() as connection:
            found = find_run(connection, "r")
        assert found is not None
        stored.append((found.view.state, found.view.position, found.view.reason))

    async def moves() -> None:
        ledger = LedgerWriter(engine)
        runs = RunTable(engine, ledger, Manifests(tmp_path / "store", StoreThreads()), _Listener())
        record = RunRecord(RunView("r", "u", "queued", position=9), 1, RunRequest("r", "s", ResourceAsk(), b""))
        runs.add(record)
        runs.record(record)
        for place in range(8, 0, -1):
            runs.move(record, place, f"place {place}")
        ledger.flush()
        await ledger.write(lambda _: None)
        look()
        runs.change(record, at_once=True, pinned=True)
        await ledger.write(lambda _: None)
        look()
        ledger.close()

    asyncio.run(moves())
    engine.dispose()
    assert stored == [("queued", 9, ""), ("queued", 1, "place 1")]
