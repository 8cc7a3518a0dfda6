"""What is committed survives; what cannot be committed is said and takes nothing else along."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import doc_blocks
import pytest
from msgspec.structs import replace
from sqlalchemy import event, select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError, OperationalError

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.db import database, lineage, notifications, retention
from jupyter_gpu_release.gateway.db.database import open_ledger
from jupyter_gpu_release.gateway.db.notifications import Notice
from jupyter_gpu_release.gateway.db.rows import StoredLease, StoredSession
from jupyter_gpu_release.gateway.db.run_times import drop_attempt, past_runs, put_attempt
from jupyter_gpu_release.gateway.db.schema import attempts
from jupyter_gpu_release.gateway.db.writer import LedgerError, LedgerWriter
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.protocol.runs import Attempt, Outcome, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.store.layout import VALUES_FILE


def submission(number: int, state: str = "queued", **facts: object) -> tuple[RunView, int, RunRequest]:
    run = f"20260101-000000-{number:08x}"
    view = RunView(run, facts.pop("user", "ann"), state, seq=1, submitted_at=float(number), **facts)
    return view, number, RunRequest(run, "s", ResourceAsk(), b"payload")


def put(engine: Engine, *runs: tuple[RunView, int, RunRequest]) -> None:
    with engine.begin() as connection:
        for run in runs:
            database.insert_run(connection, *run)


def test_a_run_comes_back_as_it_was_stored(engine: Engine) -> None:
    view, ordinal, request = submission(7, gpus=3, notebook="a.ipynb", hosts=["h"], gpu_ids=["0", "1"])
    put(engine, (view, ordinal, request))
    with engine.connect() as connection:
        stored = database.find_run(connection, view.run)
    assert (stored.view, stored.ordinal, stored.request, stored.outcome) == (view, ordinal, request, None)


def test_a_backup_as_the_operator_guide_makes_it_is_whole_while_the_ledger_is_in_use(
    engine: Engine, tmp_path: Path
) -> None:
    _mask, line = doc_blocks.block("operate/backup.md", "## Backup").commands()
    _, option, program, *_ = shlex.split(line)
    put(engine, submission(1))  # in the side file, not yet in ledger.sqlite
    with engine.connect() as reader:
        reader.execute(select(database.runs)).fetchall()
        copy = tmp_path / "copy.sqlite"
        subprocess.run([sys.executable, option, program, tmp_path / "home" / "ledger.sqlite", copy], check=True)
    restored = open_ledger(copy)
    with restored.connect() as connection:
        assert [row.run for row in connection.execute(select(database.runs))] == [submission(1)[0].run]
    restored.dispose()


def test_the_event_loop_gets_a_connection_however_many_threads_read(engine: Engine) -> None:
    """By itself SQLAlchemy gives out fifteen, and lets the next one wait for half a minute."""
    with ExitStack() as readers:
        connections = [readers.enter_context(engine.connect()) for _ in range(40)]
        assert {database.highest_ordinal(connection) for connection in connections} == {0}


def test_a_start_reads_no_table_of_past_runs_from_end_to_end(engine: Engine) -> None:
    """However many they are: each statement finds what it wants by an index."""
    said: list[tuple[str, object]] = []
    with engine.connect() as connection:
        event.listen(
            connection, "before_cursor_execute", lambda _c, _cursor, text, values, *_: said.append((text, values))
        )
        database.live_runs(connection)
        database.highest_ordinal(connection)
        past_runs(connection, 10)
        asked = list(said)
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values).all() for text, values in asked]
    steps = [row.detail for plan in plans for row in plan]
    assert len(asked) == 3
    assert [step for step in steps if step.startswith("SCAN") and "USING" not in step] == []


def test_live_runs_are_in_order_and_terminal_ones_let_go_of_their_request(engine: Engine) -> None:
    put(engine, submission(3), submission(1), submission(2))
    view, *_ = submission(1, "succeeded", finished_at=5.0)
    outcome = Outcome("ok", values=Graph(stream=b"v"))
    with engine.begin() as connection:
        database.update_run(connection, view, outcome)
        assert [run.ordinal for run in database.live_runs(connection)] == [2, 3]
        stored = database.find_run(connection, view.run)
        assert (stored.request, stored.outcome) == (None, outcome)
        assert database.highest_ordinal(connection) == 3


def test_old_inline_values_are_let_go_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trivial run's are 12 KB of random numbers' states; few of many at once, as the ledger is written meanwhile."""
    monkeypatch.setattr(database, "_STRIPPED_AT_ONCE", 2)
    ends = {1: 10.0, 2: 20.0, 3: 30.0, 4: 99.0}
    put(engine, *map(submission, ends))
    with engine.begin() as connection:
        for number, finished in ends.items():
            view, *_ = submission(number, "succeeded", finished_at=finished)
            values = Graph(stream=b"v" * 12_000, digest="d" if number == 1 else "")
            database.update_run(connection, view, Outcome("ok", values=values, notes=["n"]))
        assert database.strip_old_values(connection, 0.0, before_s=50.0) == 20.0
        assert database.strip_old_values(connection, 20.0, before_s=50.0) == 50.0
        first, second, third, new = (database.find_run(connection, submission(n)[0].run).outcome for n in ends)
    assert first.values == Graph(file=VALUES_FILE, digest="d")
    assert (second.values, third.values, third.notes) == (None, None, ["n"])
    assert new.values is not None


def test_an_older_ledger_gets_the_indexes_that_it_lacks(engine: Engine) -> None:
    path = Path(str(engine.url.database))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX runs_by_end")
    again = open_ledger(path)
    with again.connect() as connection:
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'index'").scalars().all()
    again.dispose()
    assert "runs_by_end" in names


#: the table of runs as version 1 had it
_VERSION_1 = """
CREATE TABLE meta ("key" VARCHAR NOT NULL PRIMARY KEY, value VARCHAR NOT NULL);
INSERT INTO meta VALUES ('schema_version', '1');
CREATE TABLE runs (run VARCHAR NOT NULL PRIMARY KEY, ordinal INTEGER NOT NULL, user VARCHAR NOT NULL,
    state VARCHAR NOT NULL, seq INTEGER NOT NULL, gpus INTEGER NOT NULL, ranks INTEGER NOT NULL,
    session VARCHAR NOT NULL, name VARCHAR NOT NULL, notebook VARCHAR NOT NULL, cell VARCHAR NOT NULL,
    priority VARCHAR NOT NULL, queue VARCHAR NOT NULL, simulated INTEGER NOT NULL, submitted_at FLOAT NOT NULL,
    granted_at FLOAT, running_at FLOAT, gone_at FLOAT, finished_at FLOAT, release_ms FLOAT, reason VARCHAR NOT NULL,
    gpu_name VARCHAR NOT NULL, "view" BLOB NOT NULL, outcome BLOB, request BLOB);
CREATE INDEX runs_by_age ON runs (submitted_at);
CREATE INDEX runs_by_state ON runs (state);
"""


def _ledger_of_version_1(path: Path, view: RunView, request: RunRequest) -> None:
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript(_VERSION_1)
        times = [view.submitted_at, view.granted_at, None, None, None]
        values = [view.run, 7, "ann", view.state, 3, 2, 1, "s", "fit", "a.ipynb", "c", "normal", "default", 0, *times]
        values += [None, "why", "H100", encode(view), None, encode(request)]
        old.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values)
        old.commit()


def test_a_ledger_of_version_1_opens_and_takes_runs_without_what_their_views_repeat(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    view, _, request = submission(7, "running", gpus=2, name="fit", reason="why", granted_at=8.0)
    _ledger_of_version_1(path, view, request)
    for again in (8, 9):  # once more: nothing is left to do
        engine = open_ledger(path)
        put(engine, submission(again))
        with engine.begin() as connection:
            stored = database.find_run(connection, view.run)
            indexes = {row[1] for row in connection.exec_driver_sql("PRAGMA index_list(runs)")}
            assert database.read_meta(connection, "schema_version") == "2"
        engine.dispose()
        assert (stored.view, stored.ordinal, stored.request) == (view, 7, request)
        assert {"runs_by_age", "runs_by_state", "runs_by_end"} <= indexes
    engine = open_ledger(path)
    with engine.connect() as connection:
        assert [run.ordinal for run in database.live_runs(connection)] == [7, 8, 9]
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    engine.dispose()


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    view, _, request = submission(7, "running")
    _ledger_of_version_1(path, view, request)

    def fails(*_: object) -> None:
        raise OperationalError("the disk is full", None, Exception())

    monkeypatch.setattr(database, "write_meta", fails)
    with pytest.raises(ClusterError, match="cannot open the ledger"):
        open_ledger(path)
    with contextlib.closing(sqlite3.connect(path)) as left:
        assert left.execute("SELECT value FROM meta").fetchall() == [("1",)]
        assert left.execute("SELECT name, reason FROM runs").fetchall() == [("fit", "why")]


def test_sessions_leases_and_facts(engine: Engine) -> None:
    with engine.begin() as connection:
        for state in ("live", "grace"):
            database.put_session(connection, StoredSession("s", "ann", state, 1.0))
        database.put_session(connection, StoredSession("gone", "ann", "ended", 1.0))
        assert database.open_sessions(connection) == [StoredSession("s", "ann", "grace", 1.0)]
        for run in ("r1", "r2"):
            database.put_lease(connection, StoredLease("l", run, b"p"))
        assert database.all_leases(connection) == [StoredLease("l", "r2", b"p")]
        database.drop_lease(connection, "l")
        assert database.all_leases(connection) == []
        assert database.read_meta(connection, "x") is None
        for value in ("1", "2"):
            database.write_meta(connection, "x", value)
        assert database.read_meta(connection, "x") == "2"


def test_results_are_held_used_and_removed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_AT_ONCE", 2)
    runs = [submission(number) for number in range(5)]
    put(engine, *runs)
    names = [view.run for view, _, _ in runs]
    with engine.begin() as link:
        assert retention.views_of(link, [*names, "unknown"]) == {view.run: view for view, _, _ in runs}
        for note, at_s in ((retention.put_load, 1.0), (retention.put_reuse, 2.0), (retention.put_load, 3.0)):
            note(link, "r", at_s)
        assert retention.all_uses(link) == {"r": retention.LastUse(3.0, 2.0)}
        for session, run in (("a", "r"), ("a", "q"), ("b", "r"), ("b", "r")):
            retention.put_hold(link, session, run)
        assert retention.all_holds(link) == {"a": {"r", "q"}, "b": {"r"}}
        retention.drop_holds(link, "a")
        assert retention.all_holds(link) == {"b": {"r"}}
        for run, reason in (("r", "old"), ("q", "large"), ("r", "large")):
            retention.begin_removal(link, run, reason, 1, 1.0)
        retention.forget_removal(link, "q")
        assert retention.unfinished_removals(link) == [("r", "old")]


def test_results_are_found_by_their_key_newest_first(engine: Engine) -> None:
    with engine.begin() as link:
        for number, user, key, environment, state in (
            *((number, "ann", "k", "e", "succeeded") for number in (3, 1, 2, 9, 8, 7)),
            (20, "bob", "k", "e", "succeeded"),
            (21, "ann", "other", "e", "succeeded"),
            (22, "ann", "k", "other", "succeeded"),
            (23, "ann", "k", "e", "failed"),
        ):
            view, ordinal, asked = submission(number, user=user)
            asked = replace(asked, cache_key=key)
            database.insert_run(link, view, ordinal, asked)
            view = replace(view, state=state, finished_at=float(number))
            database.update_run(link, view, Outcome("ok"))
            lineage.put_key(link, view, asked, environment)
        assert [at_s for _, at_s, _, _ in lineage.find_key(link, "ann", "k", "e")] == [9.0, 8.0, 7.0, 3.0, 2.0]


def test_an_attempt_that_was_undone_is_not_noted_after_all(engine: Engine) -> None:
    view, ordinal, asked = submission(1)
    with engine.begin() as link:
        database.insert_run(link, view, ordinal, asked)
        put_attempt(link, view, Attempt(1.0, 2.0))
        drop_attempt(link, view.run, 0)
        database.update_run(link, replace(view, state="cancelled", finished_at=3.0), None)
        put_attempt(link, view, Attempt(1.0, 2.0))
        assert link.execute(select(attempts.c.run)).all() == []


def test_the_newest_runs_that_had_gpus_are_told_from_the_oldest_on(engine: Engine) -> None:
    with engine.begin() as link:
        for number, granted_at in ((1, 1.0), (3, 3.0), (2, 2.0), (4, None)):
            view, ordinal, asked = submission(number)
            database.insert_run(link, view, ordinal, asked)
            database.update_run(link, replace(view, granted_at=granted_at, finished_at=9.0, state="failed"), None)
        assert [view.submitted_at for view in past_runs(link, 2)] == [2.0, 3.0]


def test_old_messages_are_forgotten_and_the_others_sent_in_order(engine: Engine) -> None:
    told = [Notice(run, "ann", "end", "mail", "", "") for run in ("late", "old", "soon", "sent")]
    with engine.begin() as link:
        for notice, at_s in zip(told, (9.0, 1.0, 5.0, 6.0), strict=True):
            notifications.put_notice(link, notice, at_s)
        notifications.drop_notice(link, told[3].key)
        assert [notice.run for notice in notifications.unsent_notices(link, 2.0)] == ["soon", "late"]
        assert (
            len({notice.key for notice in (told[0], replace(told[0], channel="webhook"), replace(told[0], earlier=1))})
            == 3
        )


def test_however_many_read_the_next_need_not_wait(engine: Engine) -> None:
    """It would for 30 s, and that is the gateway's event loop."""
    with ExitStack() as reading:
        for _ in range(40):
            connection = reading.enter_context(engine.connect())
            assert database.read_meta(connection, "schema_version")


def test_a_ledger_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    engine = open_ledger(path)
    with engine.begin() as connection:
        database.write_meta(connection, "schema_version", "99")
    engine.dispose()
    with pytest.raises(ClusterError, match="schema_version 99"):
        open_ledger(path)


def test_a_damaged_ledger_is_said(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(ClusterError, match=r"cannot open the ledger .*ledger\.sqlite"):
        open_ledger(path)


def test_one_bad_write_does_not_take_others_along(engine: Engine) -> None:
    async def go() -> list[BaseException | None]:
        writer = LedgerWriter(engine)
        writes = [submission(1), submission(2), submission(2), submission(3)]
        done = [
            writer.write(partial(database.insert_run, view=view, ordinal=ordinal, request=request))
            for view, ordinal, request in writes
        ]
        results = await asyncio.gather(*done, return_exceptions=True)
        writer.close()
        return results

    results = asyncio.run(go())
    assert [type(result) for result in results] == [type(None), type(None), LedgerError, type(None)]
    assert isinstance(results[2].__cause__, IntegrityError)
    with engine.connect() as connection:
        assert [run.ordinal for run in database.live_runs(connection)] == [1, 2, 3]


@pytest.mark.parametrize("fault", [OverflowError, RuntimeError, MemoryError, KeyError], ids=lambda kind: kind.__name__)
def test_no_failure_of_one_write_ends_the_ledgers_thread(engine: Engine, fault: type[Exception]) -> None:
    def bad(connection: Connection) -> None:
        insert(connection, submission(7))  # the rest of its transaction goes with it
        raise fault("no")

    async def go() -> list[BaseException | None]:
        writer = LedgerWriter(engine)
        writes = [partial(insert, what=submission(1)), bad, partial(insert, what=submission(2))]
        together = await asyncio.gather(*map(writer.write, writes), return_exceptions=True)
        alone = await asyncio.gather(writer.write(bad), return_exceptions=True)
        await writer.write(partial(insert, what=submission(3)))
        assert writer.is_alive
        writer.close()
        return together + alone

    results = asyncio.run(go())
    assert [type(result) for result in results] == [type(None), LedgerError, type(None), LedgerError]
    assert isinstance(results[1].__cause__, fault)
    with engine.connect() as connection:
        assert [run.ordinal for run in database.live_runs(connection)] == [1, 2, 3]


def insert(connection: Connection, what: tuple[RunView, int, RunRequest]) -> None:
    database.insert_run(connection, *what)


def test_a_ledger_whose_thread_has_ended_takes_nothing_in_and_says_so(engine: Engine) -> None:
    """Nothing that a write may raise does it: only what ends threads."""

    def end(connection: Connection) -> None:
        raise SystemExit

    async def go() -> None:
        dead = asyncio.Event()
        writer = LedgerWriter(engine, on_death=dead.set)
        doomed = writer.write(end)
        await asyncio.wait_for(dead.wait(), 60)
        assert not writer.is_alive
        with pytest.raises(LedgerError, match="its thread has ended"):
            await asyncio.wait_for(doomed, 60)
        with pytest.raises(LedgerError, match="its thread has ended"):
            await writer.write(partial(insert, what=submission(1)))

    asyncio.run(go())


def test_a_gateway_that_can_commit_nothing_is_not_ready(tmp_path: Path) -> None:
    async def go() -> None:
        service = GatewayService(GatewayConfig(str(tmp_path / "home"), str(tmp_path / "store"), "", str(tmp_path), ""))
        assert service.problems() == []
        service.ledger.is_alive = False
        assert service.problems() == ["the ledger's thread has ended: the gateway is being restarted"]
        assert not service.health().ready
        service.ledger.is_alive, service.ledger.trouble = True, "database or disk is full"
        (problem,) = service.problems()
        assert problem.endswith("cannot be written: database or disk is full")
        assert not service.health().ready
        service.ledger.close()
        service.engine.dispose()

    asyncio.run(go())


_DYING = """
import asyncio, sys
from pathlib import Path
from jupyter_gpu_release.gateway.actor import end_process
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
from jupyter_gpu_release.gateway.db.database import open_ledger
async def go():
    writer = LedgerWriter(open_ledger(Path(sys.argv[1])), on_death=end_process)
    writer.write(lambda connection: sys.exit())
    await asyncio.sleep(600)
asyncio.run(go())
"""


def test_the_gateways_process_ends_with_its_ledgers_thread(tmp_path: Path) -> None:
    """Ray restarts it, as after a kill (test_recovery.py)."""
    command = [sys.executable, "-c", _DYING, str(tmp_path / "ledger.sqlite")]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 1


_WRITER = """
import asyncio, sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_database import submission
from jupyter_gpu_release.gateway.db import database as ledger
from jupyter_gpu_release.gateway.db.writer import LedgerWriter
async def go():
    writer = LedgerWriter(ledger.open_ledger(Path(sys.argv[1])))
    for number in range(1, 100000):
        view, ordinal, request = submission(number)
        await writer.write(partial(ledger.insert_run, view=view, ordinal=ordinal, request=request))
        print(number, flush=True)
asyncio.run(go())
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    folders = Path(__file__).parent, Path(doc_blocks.__file__).parent
    command = [sys.executable, "-c", _WRITER, str(path), *map(str, folders)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(200)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().splitlines() if line.isdecimal()]
    writer.wait()
    writer.stdout.close()
    engine = open_ledger(path)
    with engine.connect() as connection:
        stored = [run.ordinal for run in database.live_runs(connection)]
    engine.dispose()
    assert set(acknowledged) <= set(stored)
    assert len(stored) - len(acknowledged) <= 1
