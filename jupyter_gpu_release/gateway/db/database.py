"""The gateway's memory: SQLite on a local disk. What is committed here survives the gateway's SIGKILL.

``synchronous=NORMAL`` in WAL mode: a commit survives the end of the process, not a power cut of the head node
(which ends its cluster anyway). All statements are built once; SQLAlchemy caches their compiled form.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import bindparam, create_engine, delete, event, func, insert, inspect, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection, CursorResult, Engine, Row
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.dml import Insert, Update
from sqlalchemy.sql.selectable import Select

from ...errors import ClusterError
from ...protocol.cell import Graph
from ...protocol.rest import summary_of
from ...protocol.runs import Outcome, RunRequest, RunView, Save
from ...protocol.states import RunState
from ...protocol.wire import decode, encode
from ...store.files import make_private_folder
from ...store.layout import values_name
from .migrations import migrate
from .rows import StoredLease, StoredRun, StoredSession, StoredToken
from .schema import (
    READ_WHOLE_BYTES,
    SCHEMA_VERSION,
    leases,
    meta,
    metadata,
    runs,
    saves,
    sessions,
    summaries,
    tokens,
    trials,
)

#: outcomes up to this are kept as they are: a trivial cell's without the random numbers' states that came back
_KEPT_OUTCOME_BYTES = 1024
_STRIPPED_AT_ONCE = 300
_TERMINAL = [state.word for state in RunState if state.is_terminal]
_GOING_ON = [state.word for state in RunState if not state.is_terminal]
_DIALECT = sqlite.dialect(paramstyle="qmark")


class PreparedStatement:
    """One statement. Its columns are of types that SQLite takes as they are (text, numbers, bytes)."""

    def __init__(self, statement: Insert | Update | Select[Any]) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self._text = str(compiled)
        self._names = list(compiled.positiontup or ())

    def execute(self, connection: Connection, values: Mapping[str, Any]) -> CursorResult[Any]:
        """Execute it with a value for each of its parameters; errors are SQLAlchemy's."""
        return connection.exec_driver_sql(self._text, tuple([values[name] for name in self._names]))


_INSERT_RUN = PreparedStatement(insert(runs))
_INSERT_TRIAL = PreparedStatement(insert(trials))
_UPDATE_COLUMNS = ("state", "seq", "gpus", "granted_at", "running_at", "gone_at", "finished_at", "view", "outcome")
_change_run = (
    update(runs)
    .where(runs.c.run == bindparam("key"), runs.c.seq <= bindparam("newest"))
    .values({name: bindparam(name) for name in _UPDATE_COLUMNS})
)
_UPDATE_RUN = PreparedStatement(_change_run)
_END_RUN = PreparedStatement(_change_run.values(request=bindparam("request")))
_BY_RUN = PreparedStatement(select(runs).where(runs.c.run == bindparam("key")))
#: by the states that are meant: for all but others SQLite reads the whole table
_LIVE = select(runs).where(runs.c.state.in_(_GOING_ON)).order_by(runs.c.ordinal)
_DELETE_LEASE = delete(leases).where(leases.c.lease == bindparam("key"))
_insert_lease = upsert(leases)
_PUT_LEASE = PreparedStatement(
    _insert_lease.on_conflict_do_update(
        index_elements=["lease"],
        set_={"run": _insert_lease.excluded.run, "placement": _insert_lease.excluded.placement},
    )
)
_insert_summary = upsert(summaries)
_KEEP_SUMMARY = _insert_summary.on_conflict_do_update(
    index_elements=["run"], set_={"summary": _insert_summary.excluded.summary}
)
_insert_save = upsert(saves)
_PUT_SAVE = _insert_save.on_conflict_do_update(index_elements=["run"], set_={"save": _insert_save.excluded.save})
_DROP_SAVE = delete(saves).where(saves.c.run == bindparam("key"))
_SAVE_BEFORE = (
    select(runs.c.state, saves.c.save)
    .select_from(runs.outerjoin(saves, saves.c.run == runs.c.run))
    .where(runs.c.run == bindparam("key"))
)
_insert_session = upsert(sessions)
_PUT_SESSION = _insert_session.on_conflict_do_update(
    index_elements=["session"], set_={"state": _insert_session.excluded.state, "since": _insert_session.excluded.since}
)
_insert_meta = upsert(meta)
_PUT_META = _insert_meta.on_conflict_do_update(index_elements=["key"], set_={"value": _insert_meta.excluded.value})
_META = select(meta.c.value).where(meta.c.key == bindparam("key"))


def open_ledger(path: Path) -> Engine:
    """Open (or make) the ledger; raises :class:`ClusterError` when it is damaged or of a newer version."""
    make_private_folder(path.parent)
    # SQLite gives its side files the mode of the database
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # however many threads read just now, the event loop gets a connection: it must never wait for one
    engine = create_engine(
        f"sqlite:///{path}", max_overflow=-1, connect_args={"check_same_thread": False, "timeout": 5.0}
    )
    event.listen(engine, "connect", _set_up_connection)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "BEGIN IMMEDIATE"
            )  # of its own accord the driver begins none before tables change
            meta.create(connection, checkfirst=True)
            known = int(read_meta(connection, "schema_version") or SCHEMA_VERSION)
            if known > SCHEMA_VERSION:
                raise ClusterError(
                    f"the ledger {path} has schema_version {known}, this package knows {SCHEMA_VERSION}",
                    hint="upgrade jupyter_gpu_release, or move the file away",
                )
            migrate(connection, known)
            knows_trials = inspect(connection).has_table(trials.name)
            metadata.create_all(connection)
            if not knows_trials:
                _note_trials(connection)
            for index in runs.indexes:  # older ledgers have not all
                index.create(connection, checkfirst=True)
            write_meta(connection, "schema_version", str(SCHEMA_VERSION))
    except SQLAlchemyError as error:
        raise ClusterError(f"cannot open the ledger {path}: {error}", hint="move it away to start a new one") from error
    return engine


def _set_up_connection(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "wal_autocheckpoint=2000", "cache_size=-8000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _note_trials(connection: Connection) -> None:
    """Fill the table of trials from the views of all runs, in a ledger that is older than it."""
    maybe = select(runs.c.view).where(func.instr(runs.c.view, bindparam("word", b"sweep")) > 0)
    views = [decode(row.view, RunView) for row in connection.execute(maybe)]
    found = [{"sweep": view.sweep, "run": view.run} for view in views if view.sweep]
    if found:
        connection.execute(insert(trials), found)


# ------------------------------------------------------------------------------------------------ runs
def insert_run(connection: Connection, view: RunView, ordinal: int, request: RunRequest) -> None:
    """Record a submission; raises ``IntegrityError`` for a run that is known already."""
    fixed = {
        "run": view.run,
        "ordinal": ordinal,
        "user": view.user,
        "gpus": view.gpus,
        "session": view.session,
        "submitted_at": view.submitted_at,
        "request": encode(request),
    }
    _INSERT_RUN.execute(connection, fixed | _changing(view, None))
    if view.sweep:
        _INSERT_TRIAL.execute(connection, {"sweep": view.sweep, "run": view.run})


def update_run(connection: Connection, view: RunView, outcome: Outcome | None) -> None:
    """Record a run's newest view, unless a newer one is there; a terminal one lets go of the request."""
    changing = _changing(view, outcome)
    statement = _END_RUN if RunState.of(view.state).is_terminal else _UPDATE_RUN
    done = statement.execute(connection, {"key": view.run, "newest": view.seq, "request": None} | changing)
    if outcome is not None and done.rowcount:
        _keep_summary(connection, view.run, outcome, len(changing["outcome"]))


def _changing(view: RunView, outcome: Outcome | None) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(view, name) for name in _UPDATE_COLUMNS if name not in ("view", "outcome")}
    if view.imported_from:
        facts["granted_at"] = None  # it held another cluster's GPUs: here they are in no sum
    bare = msgspec.structs.replace(view, outcome=None) if view.outcome is not None else view
    return facts | {"view": encode(bare), "outcome": encode(outcome) if outcome is not None else None}


def _keep_summary(connection: Connection, run: str, outcome: Outcome, encoded_bytes: int) -> None:
    """Record what lists show of an outcome that takes ``encoded_bytes`` (nothing for a small one)."""
    if encoded_bytes > READ_WHOLE_BYTES:
        connection.execute(_KEEP_SUMMARY, {"run": run, "summary": encode(summary_of(outcome))})


def find_run(connection: Connection, run: str) -> StoredRun | None:
    """One run, or None."""
    row = _BY_RUN.execute(connection, {"key": run}).one_or_none()
    return None if row is None else _stored(row)


def live_runs(connection: Connection) -> list[StoredRun]:
    """All runs that are not terminal, in the order of their submission."""
    return [_stored(row) for row in connection.execute(_LIVE)]


def highest_ordinal(connection: Connection) -> int:
    """The ordinal of the latest submission."""
    return int(connection.execute(select(runs.c.ordinal).order_by(runs.c.ordinal.desc()).limit(1)).scalar() or 0)


def strip_old_values(connection: Connection, after_s: float, before_s: float) -> float:
    """Let go of inline values of runs that finished between these times: by then they are on the store, too.

    Returns up to when that is done: a few hundred runs are looked at in one go.
    """
    old = select(runs.c.run, runs.c.outcome, runs.c.finished_at).where(
        runs.c.finished_at > after_s, runs.c.finished_at <= before_s, func.length(runs.c.outcome) > _KEPT_OUTCOME_BYTES
    )
    found = connection.execute(old.order_by(runs.c.finished_at).limit(_STRIPPED_AT_ONCE)).all()
    for run, blob, _ in found:
        outcome = decode(blob, Outcome)
        if outcome.values is None or outcome.values.file:
            continue
        digest, file = outcome.values.digest, values_name(outcome.values)
        bare = msgspec.structs.replace(outcome, values=Graph(file=file, digest=digest) if digest else None)
        connection.execute(update(runs).where(runs.c.run == run).values(outcome=encode(bare)))
    return float(found[-1].finished_at) if len(found) == _STRIPPED_AT_ONCE else before_s


def _stored(row: Row[Any]) -> StoredRun:
    request = decode(row.request, RunRequest) if row.request is not None else None
    outcome = decode(row.outcome, Outcome) if row.outcome is not None else None
    return StoredRun(decode(row.view, RunView), row.ordinal, outcome, request)


def put_save(connection: Connection, run: str, save: Save) -> None:
    """Record the save that a run goes on from, unless there is a newer one, or the run is over."""
    before = connection.execute(_SAVE_BEFORE, {"key": run}).one_or_none()
    if before is not None and before.state in _TERMINAL:
        return
    if before is not None and before.save is not None and decode(before.save, Save).number > save.number:
        return
    connection.execute(_PUT_SAVE, {"run": run, "save": encode(save)})


def drop_save(connection: Connection, run: str) -> None:
    """Forget the save of a run that is over."""
    connection.execute(_DROP_SAVE, {"key": run})


def all_saves(connection: Connection) -> dict[str, Save]:
    """Run → its last save."""
    return {row.run: decode(row.save, Save) for row in connection.execute(select(saves))}


# ------------------------------------------------------------------------- leases, sessions, tokens, meta
def put_lease(connection: Connection, lease: StoredLease) -> None:
    """Record (or replace) a lease."""
    _PUT_LEASE.execute(connection, {"lease": lease.lease, "run": lease.run, "placement": lease.placement})


def drop_lease(connection: Connection, lease: str) -> None:
    """Forget a lease that is gone."""
    connection.execute(_DELETE_LEASE, {"key": lease})


def all_leases(connection: Connection) -> list[StoredLease]:
    """Every recorded lease."""
    return [StoredLease(row.lease, row.run, row.placement) for row in connection.execute(select(leases))]


def put_session(connection: Connection, session: StoredSession) -> None:
    """Record (or replace) a session's state."""
    values = {"session": session.session, "user": session.user, "state": session.state, "since": session.since}
    connection.execute(_PUT_SESSION, values)


def open_sessions(connection: Connection) -> list[StoredSession]:
    """Sessions that have not ended."""
    found = connection.execute(select(sessions).where(sessions.c.state != "ended"))
    return [StoredSession(row.session, row.user, row.state, row.since) for row in found]


def drop_sessions(connection: Connection, before: Mapping[str, float]) -> None:
    """Forget sessions that have been in a state since before the time that ``before`` has for it."""
    for state, before_s in before.items():
        connection.execute(delete(sessions).where(sessions.c.state == state, sessions.c.since < before_s))


def put_token(connection: Connection, token: StoredToken) -> None:
    """Record a token, in place of the one with the same label and user."""
    same = (tokens.c.label == token.label) & (tokens.c.user == token.user)
    connection.execute(delete(tokens).where(same | (tokens.c.digest == token.digest)))
    values = {"digest": token.digest, "label": token.label, "user": token.user, "role": token.role}
    connection.execute(insert(tokens), values | {"expires_at": token.expires_at, "created_at": token.created_at})


def all_tokens(connection: Connection) -> list[StoredToken]:
    """Every token, expired ones too."""
    return [StoredToken(*row) for row in connection.execute(select(*tokens.c))]


def read_meta(connection: Connection, key: str) -> str | None:
    """One remembered fact, or None."""
    value: str | None = connection.execute(_META, {"key": key}).scalar()
    return value


def write_meta(connection: Connection, key: str, value: str) -> None:
    """Remember a fact."""
    connection.execute(_PUT_META, {"key": key, "value": value})
