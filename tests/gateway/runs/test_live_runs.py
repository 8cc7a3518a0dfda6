"""Commits of the table of runs: one that a full disk refuses is made whole later, in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from sqlalchemy import select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError

from jupyter_gpu_release.gateway.db import database, writer
from jupyter_gpu_release.gateway.db.run_times import drop_attempt, put_attempt
from jupyter_gpu_release.gateway.db.schema import attempts, summaries
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
from jupyter_gpu_release.gateway.runs.live_runs import RunTable
from jupyter_gpu_release.gateway.runs.record import Queued, Releasing, RunRecord
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import Attempt, Outcome, ResourceAsk, RunRequest, RunView, Save, ValueInfo

RUN = "20260101-000000-00000001"
_VIEW = RunView(RUN, "ann", "running", seq=1, submitted_at=1.0, session="s", gpus=1)
_REQUEST = RunRequest(RUN, "s", ResourceAsk(), b"")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = database.open_ledger(tmp_path / "ledger.sqlite")
    with engine.begin() as connection:
        database.insert_run(connection, _VIEW, 1, _REQUEST)
    yield engine
    engine.dispose()


def _save(number: int) -> Save:
    return Save(number, 0, float(number), "", 0)


@pytest.mark.asyncio
async def test_what_is_true_together_with_a_new_state_is_tried_again_with_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_AGAIN_S", 0.01)
    ledger, refusals = LedgerWriter(engine), [1, 1]
    record = RunRecord(_VIEW, 1, _REQUEST, Releasing(Mock(), Outcome("preempted")))
    record.recorded = True
    table = RunTable(engine, ledger, Mock(), Mock())
    table.add(record)

    def also(connection: Connection) -> None:
        database.put_save(connection, RUN, _save(3))
        if refusals:
            refusals.pop()
            raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    done = table.put(record, replace(record.snapshot.shown(Queued()), save=_save(3)), also=also)
    assert done is not None
    await asyncio.wait_for(done, 60)
    ledger.close()
    with engine.connect() as connection:
        stored = database.find_run(connection, RUN)
        assert stored is not None
        assert stored.view.state == "queued"
        assert database.all_saves(connection)[RUN].number == 3
    assert not refusals


def _writes() -> list[Any]:
    """A run's steps, as they are committed: an attempt ends with a save, a newer save, and its end while it waits."""
    ended = Attempt(1.0, 2.0)
    waits = msgspec.structs.replace(_VIEW, state="queued", seq=2, attempts=[ended])
    over = msgspec.structs.replace(_VIEW, state="cancelled", seq=9, finished_at=9.0)

    def go_back(connection: Connection) -> None:
        database.update_run(connection, waits, Outcome("preempted", results=[ValueInfo("old", "int", 1)] * 400))
        put_attempt(connection, _VIEW, ended)
        database.put_save(connection, RUN, _save(3))

    def finish(connection: Connection) -> None:
        database.update_run(connection, over, Outcome("cancelled", results=[ValueInfo("new", "int", 1)] * 400))
        drop_attempt(connection, RUN, 0)
        database.drop_save(connection, RUN)

    return [go_back, partial(database.put_save, run=RUN, save=_save(4)), finish]


@pytest.mark.parametrize("order", permutations(range(3)))
def test_in_whatever_order_they_are_committed_the_newest_stands(engine: Engine, order: tuple[int, ...]) -> None:
    writes = _writes()
    for number in order:
        with engine.begin() as connection:
            writes[number](connection)
    with engine.connect() as connection:
        stored = database.find_run(connection, RUN)
        assert stored is not None
        assert stored.view.state == "cancelled"
        assert database.all_saves(connection) == {}
        assert connection.execute(select(attempts)).all() == []
        (summary,) = connection.execute(select(summaries.c.summary)).scalars()
        assert b"new" in summary


def test_an_older_save_never_takes_the_place_of_a_newer_one(engine: Engine) -> None:
    with engine.begin() as connection:
        for number in (3, 5, 4):
            database.put_save(connection, RUN, _save(number))
        assert database.all_saves(connection)[RUN].number == 5
        database.put_save(connection, RUN, msgspec.structs.replace(_save(5), values=Graph(file="save-5.graph")))
        assert database.all_saves(connection)[RUN].values == Graph(file="save-5.graph")
