"""The ledger's rows on what runs were made from, and which of them may be used again."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from ...options.run_options import written_options
from ...protocol.lineage import CacheUse, Environment, Link, RunFacts
from ...protocol.runs import Outcome, RunRequest, RunView
from ...protocol.states import is_run_id
from ...protocol.wire import decode, encode
from .database import PreparedStatement
from .schema import cache_keys, cache_uses, run_facts, run_links, runs

_INSERT_FACTS = PreparedStatement(upsert(run_facts).on_conflict_do_nothing())
_CHANGE_FACTS = PreparedStatement(
    update(run_facts).where(run_facts.c.run == bindparam("key")).values(facts=bindparam("facts"))
)
_INSERT_LINK = upsert(run_links).on_conflict_do_nothing()
_INSERT_KEY = upsert(cache_keys).on_conflict_do_nothing()
#: so many runs with one key are offered
_MOST_CANDIDATES = 5


def put_submission(connection: Connection, request: RunRequest) -> None:
    """Record what is known when a run is submitted."""
    _INSERT_FACTS.execute(connection, {"run": request.run, "facts": encode(_facts(request))})
    _put_links(connection, request)


def _put_links(connection: Connection, request: RunRequest) -> None:
    links = [
        {"run": request.run, "name": used.name, "source": used.run}
        for used in request.used
        if is_run_id(used.run) and used.run != request.run
    ]
    if links:
        connection.execute(_INSERT_LINK, links)


def put_fetched(connection: Connection, request: RunRequest) -> None:
    """A running cell was sent more of its kernel's names."""
    _CHANGE_FACTS.execute(connection, {"key": request.run, "facts": encode(_facts(request))})
    _put_links(connection, request)


def _facts(request: RunRequest, environment: Environment = Environment()) -> RunFacts:  # noqa: B008 - frozen
    options = written_options(request)
    return RunFacts(request.code, request.versions, request.used, request.cache_key, environment, options)


def put_environment(connection: Connection, request: RunRequest, environment: Environment) -> None:
    """Record where the run was, once that is known."""
    _CHANGE_FACTS.execute(connection, {"key": request.run, "facts": encode(_facts(request, environment))})


def facts_of(connection: Connection, run: str) -> RunFacts:
    """The ledger's facts about a run (none about one from before they were kept)."""
    found = connection.execute(select(run_facts.c.facts).where(run_facts.c.run == run)).scalar()
    return RunFacts() if found is None else decode(found, RunFacts)


def links_of(connection: Connection, some: Iterable[str], *, up: bool) -> list[Link]:
    """Links from these runs to what they used (``up``), or to what used them."""
    column = run_links.c.run if up else run_links.c.source
    statement = select(run_links).where(column.in_(list(some))).order_by(run_links.c.run, run_links.c.name)
    return [Link(row.run, row.name, row.source) for row in connection.execute(statement)]


def views_of(connection: Connection, some: Iterable[str]) -> dict[str, RunView]:
    """The views of these runs, as far as the ledger knows them."""
    found = connection.execute(select(runs.c.run, runs.c.view).where(runs.c.run.in_(list(some))))
    return {row.run: decode(row.view, RunView) for row in found}


def put_key(connection: Connection, view: RunView, request: RunRequest, environment: str) -> None:
    """The run succeeded: whoever asks with this key may have its results."""
    row = {
        "run": view.run,
        "user": view.user,
        "key": request.cache_key,
        "environment": environment,
        "finished_at": view.finished_at or time.time(),
        "marks": request.cache_marks,
    }
    connection.execute(_INSERT_KEY, row)


def find_key(connection: Connection, user: str, key: str, environment: str) -> list[tuple[str, float, bytes, Outcome]]:
    """Runs of this user with this key, newest first: id, end, marks, outcome."""
    statement = (
        select(cache_keys.c.run, cache_keys.c.finished_at, cache_keys.c.marks, runs.c.outcome)
        .join(runs, runs.c.run == cache_keys.c.run)
        .where(
            cache_keys.c.user == user,
            cache_keys.c.key == key,
            cache_keys.c.environment == environment,
            runs.c.state == "succeeded",
            runs.c.outcome.is_not(None),
        )
        .order_by(cache_keys.c.finished_at.desc())
        .limit(_MOST_CANDIDATES)
    )
    return [
        (row.run, row.finished_at, row.marks, decode(row.outcome, Outcome)) for row in connection.execute(statement)
    ]


def put_use(connection: Connection, run: str, use: CacheUse) -> None:
    """The results of ``run`` were bound again."""
    connection.execute(insert(cache_uses), {"run": run, "at": time.time(), "notebook": use.notebook, "cell": use.cell})


def uses_of(connection: Connection, run: str) -> int:
    """The number of times that the results of ``run`` were bound again."""
    return int(connection.execute(select(func.count()).where(cache_uses.c.run == run)).scalar() or 0)


def is_keyed(connection: Connection, run: str) -> bool:
    """Tell if a run may be found by its key."""
    return connection.execute(select(cache_keys.c.run).where(cache_keys.c.run == run)).first() is not None
