"""A ledger of many finished runs: the gateway starts with it, answers, and collects; prints the seconds of each."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_bed import BrokerBed
from soak import sized
from sqlalchemy import insert
from store_bed import OLD, StoreBed, run_id

from jupyter_gpu_release.gateway.api.responses import runs_document, status_document
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.db.database import open_ledger
from jupyter_gpu_release.gateway.db.schema import attempts, run_facts, runs, uses
from jupyter_gpu_release.protocol.lineage import RunFacts
from jupyter_gpu_release.protocol.runs import Outcome, RunView
from jupyter_gpu_release.protocol.wire import encode

_AT_ONCE = 10_000
_YEAR_S = 365 * 86400.0


@pytest.mark.soak
@pytest.mark.asyncio
async def test_a_gateway_with_many_finished_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = sized(2_000, 1_000_000)
    _fill(tmp_path, count)
    of_store = StoreBed(tmp_path)
    old = of_store.add(count + 1)
    bed = BrokerBed(tmp_path, monkeypatch)
    with _timed("start"):
        life = bed.life()
        service = await life.__aenter__()
    try:
        with _timed("status"):
            status = await status_document(service, "ann")
        with _timed("GPU-hours"):
            async with asyncio.timeout(60):  # who asks first does not wait for them
                while not (await service.usage.usage_for(Caller("user1"))).week.held_s:
                    await asyncio.sleep(0.01)
        with _timed("runs"):
            listed = runs_document(service.engine, {}, Caller("user1"), 50, time.time(), mine=True)
        with _timed("gc"):
            collected = await service.result_collector.collect(OLD)
    finally:
        await life.__aexit__(None, None, None)
    assert (status.runs, status.queue) == ([], [])
    assert len(json.loads(listed)["runs"]) == 50
    assert [removal.run for removal in collected.removals] == [old]


def _fill(folder: Path, count: int) -> None:
    """Runs of ten users, spread over a year; one in ten had an attempt before, and was loaded."""
    engine, now_s = open_ledger(folder / "ledger.sqlite"), time.time()
    outcome, facts = encode(Outcome("ok")), encode(RunFacts("model.fit(data)"))
    for begin in range(0, count, _AT_ONCE):
        numbers = range(begin, min(begin + _AT_ONCE, count))
        with engine.begin() as link:
            link.execute(insert(runs), [_row(each, now_s - _YEAR_S * (1 - each / count), outcome) for each in numbers])
            link.execute(insert(run_facts), [{"run": run_id(each), "facts": facts} for each in numbers])
            tenth = [run_id(each) for each in numbers if each % 10 == 0]
            link.execute(insert(uses), [{"run": run, "loaded_at": 1.0, "reused_at": 0.0} for run in tenth])
            link.execute(insert(attempts), [{"run": run, "number": 0, **_ATTEMPT} for run in tenth])
    engine.dispose()


_ATTEMPT = {"user": "ann", "session": "s", "gpus": 1, "since": 1.0, "running_at": 1.0, "until": 2.0}


def _row(number: int, at_s: float, outcome: bytes) -> dict[str, Any]:
    facts = {"user": f"user{number % 10}", "gpus": 1, "session": f"session{number // 50}", "submitted_at": at_s}
    times = {"granted_at": at_s + 1, "running_at": at_s + 1, "gone_at": at_s + 60, "finished_at": at_s + 60}
    view = RunView(run_id(number), state="succeeded", seq=5, notebook="a.ipynb", **facts, **times)  # type: ignore[arg-type]
    known = {"run": view.run, "ordinal": number, "state": view.state, "seq": 5, "view": encode(view)}
    return {**known, **facts, **times, "outcome": outcome, "request": None}


@contextmanager
def _timed(what: str) -> Iterator[None]:
    begun_s = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - begun_s:.3f} s")
