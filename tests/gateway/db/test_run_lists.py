"""Lists of runs: newest first, of others' runs less, and no values are read for them."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from sqlalchemy import delete, event
from sqlalchemy.engine import Connection, Engine

from jupyter_gpu_release.cli.tables import print_runs
from jupyter_gpu_release.gateway.api.responses import runs_document
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.database import open_ledger
from jupyter_gpu_release.gateway.db.run_lists import newest_runs, runs_of_sweeps
from jupyter_gpu_release.gateway.db.schema import summaries
from jupyter_gpu_release.presentation.wording import wait_of_row
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.rest import RunsDocument
from jupyter_gpu_release.protocol.runs import (
    ErrorInfo,
    Outcome,
    PersistWait,
    ResourceAsk,
    RunRequest,
    RunView,
    ValueInfo,
)


def add(engine: Engine, number: int, outcome: Outcome | None = None, user: str = "ann", sweep: str = "") -> str:
    run = f"20260101-000000-{number:08x}"
    view = RunView(run, user, "queued", seq=1, submitted_at=float(number), sweep=sweep)
    with engine.begin() as connection:
        database.insert_run(connection, view, number, RunRequest(run, "s", ResourceAsk(), b""))
        if outcome is not None:
            database.update_run(connection, msgspec.structs.replace(view, state="succeeded", finished_at=9.0), outcome)
    return run


def listed(
    engine: Engine, caller: Caller, count: int = 100, *, mine: bool = False, brief: bool = False
) -> RunsDocument:
    found = runs_document(engine, {}, caller, count, 10.0, mine=mine, brief=brief)
    return msgspec.json.decode(found, type=RunsDocument)


def test_newest_first_of_one_user_or_all(engine: Engine) -> None:
    first, bobs, last = add(engine, 1), add(engine, 2, user="bob"), add(engine, 3)
    assert [row.run for row in listed(engine, Caller("ann", "admin"), 2).runs] == [last, bobs]
    assert [row.run for row in listed(engine, Caller("ann"), mine=True).runs] == [last, first]


def test_the_trials_of_a_sweep_cost_what_they_are(engine: Engine) -> None:
    """Those of another user have the same id; a ledger from before there was a table of them gets one."""
    sweep = f"20260101-000000-{9:08x}"
    trials = [add(engine, number, sweep=sweep) for number in (1, 2, 3)]
    add(engine, 4, user="bob", sweep=sweep)
    add(engine, 5)
    plans: list[str] = []

    def explain(connection: Connection, _cursor: object, statement: str, values: tuple[Any, ...], *_: object) -> None:
        if not statement.startswith("EXPLAIN"):
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
            plans.extend(row[3] for row in rows)

    event.listen(engine, "before_cursor_execute", explain)
    for user, count, expected in (("ann", 9, trials[::-1]), ("ann", 2, trials[:0:-1]), (None, 1, None)):
        with engine.connect() as connection:
            found = [listed.view.run for listed in runs_of_sweeps(connection, count, [sweep], user)]
        assert found == (expected or [f"20260101-000000-{4:08x}"])
    more = f"20260101-000000-{8:08x}"
    last = add(engine, 6, sweep=more)
    with engine.connect() as connection:
        found = [listed.view.run for listed in runs_of_sweeps(connection, 9, [sweep, more], "ann")]
    assert found == [last, *trials[::-1]]
    assert plans
    assert not [plan for plan in plans if plan.startswith("SCAN")], plans
    event.remove(engine, "before_cursor_execute", explain)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE trials")
    again = open_ledger(Path(str(engine.url.database)))
    with again.connect() as connection:
        assert [listed.view.run for listed in runs_of_sweeps(connection, 9, [sweep], "ann")] == trials[::-1]
    again.dispose()


def test_results_and_errors_are_for_the_owner_and_admins(engine: Engine) -> None:
    error = ErrorInfo("ValueError", "no", ["traceback"], hint="m")
    add(engine, 1, Outcome("error", error, results=[ValueInfo("x", "int", 8)], notes=["n"]))
    (others,) = listed(engine, Caller("bob")).runs
    assert (others.user, others.error, others.results, others.notes) == ("ann", None, [], [])
    for caller in (Caller("ann"), Caller("bob", "admin")):
        (row,) = listed(engine, caller).runs
        (brief,) = listed(engine, caller, brief=True).runs
        assert brief == msgspec.structs.replace(row, error=None, results=[], notes=[])
        assert (row.error.evalue, row.error.hint, row.results[0].name, row.notes) == ("no", "m", "x", ["n"])


@pytest.mark.parametrize("kept", [True, False], ids=["with its summary", "from before there were summaries"])
def test_a_large_outcome_is_shown_like_a_small_one(engine: Engine, kept: bool) -> None:
    large = Outcome("ok", None, Graph(stream=bytes(1 << 20)), [ValueInfo("x", "bytes", 1 << 20)], ["a note"])
    add(engine, 1, large)
    if not kept:
        with engine.begin() as connection:
            assert connection.execute(delete(summaries)).rowcount == 1
    (row,) = listed(engine, Caller("ann")).runs
    assert (row.results, row.notes) == (large.results, large.notes)


def test_values_are_not_read_for_a_list(engine: Engine) -> None:
    for number in range(20):
        add(engine, number, Outcome("ok", None, Graph(stream=bytes(1 << 20)), [ValueInfo("x", "bytes", 1 << 20)]))
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *facts: statements.append(facts[2]))
    with engine.connect() as connection:
        assert len(list(newest_runs(connection, 100, None))) == 20
        assert len(statements) == 1
        (bytes_read,) = connection.exec_driver_sql(
            "SELECT sum(length(s.summary)) FROM runs r JOIN summaries s ON s.run = r.run"
        ).one()
    assert bytes_read < 20 * 1000


def test_ten_thousand_runs_fit_into_one_list(engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(10_001):
            run = f"20260101-000000-{number:08x}"
            view = RunView(run, "ann", "queued", seq=1, submitted_at=float(number))
            database.insert_run(connection, view, number, RunRequest(run, "s", ResourceAsk(), b""))
    rows = listed(engine, Caller("ann"), 10_000).runs
    assert len({row.run for row in rows}) == 10_000
    assert rows[-1].submitted_at == 1.0


@pytest.fixture
def live_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Moves this process to another zone."""

    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


def test_the_next_try_is_told_in_the_readers_zone(engine: Engine, live_in: Callable[[str], None]) -> None:
    live_in("UTC")
    at_s = float(round(time.time()) + 60)
    wait = PersistWait("/store/values.graph", 1 << 30, "No space left on device", 8 << 20, "disk", 3, at_s)
    view = RunView("20260101-000000-00000009", "ann", "persisting", seq=1, submitted_at=9.0, waits_for=wait)
    with engine.begin() as connection:
        database.insert_run(connection, view, 9, RunRequest(view.run, "s", ResourceAsk(), b""))
    (row,) = listed(engine, Caller("ann")).runs
    live_in("Asia/Kolkata")
    assert wait_of_row(row) == (
        "1 GiB of results cannot be written to /store/values.graph (No space left on device, 8 MiB free); kept on the "
        "node's own disk, next try at " + time.strftime("%H:%M:%S IST", time.localtime(at_s))
    )
    text = io.StringIO()
    print_runs(Console(file=text, width=300), [row])
    assert f"· {row.run}: {wait_of_row(row)}\n" in text.getvalue()
