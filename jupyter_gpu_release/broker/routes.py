"""The gateway's routes, as one table from which the application and the OpenAPI document are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from ..core.access_documents import TokenIssued, TokenRequest, TokenRevocation, TokensDocument
from ..core.cache import CacheAnswer, CacheQuestion, CacheUse
from ..core.collection import GcDocument
from ..core.config import RetentionPolicy
from ..core.documents import (
    EventsPage,
    Health,
    LeaseExtension,
    NodeChecks,
    RunRow,
    RunsDocument,
    StatusDocument,
    WarmRow,
)
from ..core.messages import RunRequest, RunView
from ..core.provenance import Lineage
from ..core.run import RunState
from .access import Act, shown_status
from .broker import Broker
from .checks import check_nodes
from .connection import SessionConnection
from .documents import CARDS_AGE_S, record_row, runs_document, status_document
from .event_routes import events_socket, run_events
from .imports import import_run
from .lease_routes import extend_lease, release_lease
from .parameters import body_of, flag, number
from .persisting import give_up
from .provenance_routes import ask_cache, note_reuse, show_lineage
from .status_board import LONGEST_WAIT_S
from .token_routes import create_token, list_tokens, revoke_tokens
from .tokens import Caller

#: bytes of a REST request's body at most (a submission with its inline inputs and shipped modules)
BODY_LIMIT_BYTES = 32 << 20
_MOST_ROWS = 10_000
#: how old a card's figures may be in an answer that tells of a change
_SHOWN_CARDS_AGE_S = 2.5


Handler = Callable[[Broker, Caller, Request], Awaitable[Any]]
SocketHandler = Callable[[Broker, Caller, WebSocket], Awaitable[None]]


@dataclass(frozen=True)
class Route:
    """One route. ``response`` and ``body`` are record types; ``query`` maps parameters to (type, meaning)."""

    method: str
    path: str
    handler: Handler | None
    summary: str
    response: Any = None
    body: Any = None
    query: dict[str, tuple[str, str]] = field(default_factory=dict)
    socket: SocketHandler | None = None
    status: int = 200
    #: for admins only; checked before the handler is called
    admin: bool = False


# ------------------------------------------------------------------------------------------- handlers
async def submit_run(broker: Broker, caller: Caller, request: Request) -> RunView:
    """POST /v1/runs."""
    asked = await body_of(request, RunRequest)
    unattached = msgspec.structs.replace(asked, session="")  # no socket, so no kernel whose end could end it
    record = await broker.submit(caller, unattached)
    await broker.committed(record)
    return broker.visible(caller, record.view)


async def list_runs(broker: Broker, caller: Caller, request: Request) -> Response:
    """GET /v1/runs."""
    count = min(number(request, "limit", 100), _MOST_ROWS)
    mine = flag(request, "mine")
    if caller.is_admin and not mine:
        broker.audit.note(caller, "runs.list")
    fresh = {record.run: record for record in broker.runs.in_memory()}
    # 10,000 runs are some 10 MB of JSON: made in a thread, kernels' messages come first
    body = await asyncio.to_thread(
        runs_document, broker.engine, fresh, caller, count, time.time(), mine=mine, brief=flag(request, "brief")
    )
    return Response(body, media_type="application/json")


async def show_run(broker: Broker, caller: Caller, request: Request) -> RunRow:
    """GET /v1/runs/{run}."""
    record = broker.run_for(caller, request.path_params["run"])
    return record_row(record, caller, time.time())


async def show_outcome(broker: Broker, caller: Caller, request: Request) -> RunView:
    """GET /v1/runs/{run}/outcome. Who asks for it is about to load the values: they are not collected meanwhile."""
    record = broker.run_for(caller, request.path_params["run"])
    session = request.query_params.get("session", "")
    if broker.sessions.belongs_to(session, caller.user):
        broker.keeping.hold(session, record.run)
    elif record.view.user == caller.user:
        broker.keeping.note_load(record.run)
    return broker.visible(caller, record.view)


async def cancel_run(broker: Broker, caller: Caller, request: Request) -> RunRow:
    """POST /v1/runs/{run}/cancel."""
    record = broker.run_for(caller, request.path_params["run"], Act.CHANGE)
    kill = flag(request, "kill")
    reason = f"cancelled by {caller.user}"
    if record.state is RunState.PERSISTING:
        await give_up(broker, record, reason)
    else:
        await broker.lifecycle.cancel(record, reason, kill=kill)
    return record_row(record, caller, time.time())


async def pin_run(broker: Broker, caller: Caller, request: Request) -> RunRow:
    """POST /v1/runs/{run}/pin and /unpin."""
    pinned = request.url.path.endswith("/pin")
    return record_row(await broker.pin(caller, request.path_params["run"], pinned=pinned), caller, time.time())


async def import_bundle(broker: Broker, caller: Caller, request: Request) -> RunRow:
    """POST /v1/imports/{name}."""
    by = request.query_params.get("exported_by", "")[:200]
    record = await import_run(broker, caller, request.path_params["name"], by)
    broker.audit.note(caller, "run.import", record.run, detail=f"exported by {by}")
    return record_row(record, caller, time.time())


async def collect_runs(broker: Broker, caller: Caller, request: Request) -> GcDocument:
    """POST /v1/gc. Who is no administrator collects the own runs only."""
    policy = broker.config.retention
    limits = {name: number(request, name, -1) for name in ("older_than_s", "keep", "quota_bytes")}
    given = {name: value for name, value in limits.items() if value >= 0}
    if given:  # limits that are named replace those of the gateway's settings
        policy = RetentionPolicy(**given)
    user = None if caller.is_admin else caller.user
    dry_run = flag(request, "dry_run")
    if not dry_run:
        broker.audit.note(caller, "runs.collect")
    return await broker.collector.collect(policy, user=user, dry_run=dry_run)


async def show_status(broker: Broker, caller: Caller, request: Request) -> Response:
    """GET /v1/status; ``Server-Timing`` tells which part of the time was waiting."""
    began_s, age_s = time.monotonic(), CARDS_AGE_S
    if "after" in request.query_params:
        wait_s = number(request, "wait_ms", 0) / 1000
        await broker.board.after_for(caller, broker.tokens, request.query_params["after"], wait_s)
        age_s = _SHOWN_CARDS_AGE_S  # a change is told at once, also while a node's agent is slow
    waited_ms = (time.monotonic() - began_s) * 1000
    document = shown_status(caller, await status_document(broker, caller.user, age_s), await broker.account.of(caller))
    headers = {"Server-Timing": f"wait;dur={waited_ms:.1f}"}
    return Response(msgspec.json.encode(document), headers=headers, media_type="application/json")


async def show_health(broker: Broker, caller: Caller, request: Request) -> Health:
    """GET /v1/health."""
    return broker.health()


async def show_checks(broker: Broker, caller: Caller, request: Request) -> NodeChecks:
    """GET /v1/checks."""
    return await check_nodes(broker)


async def show_openapi(broker: Broker, caller: Caller, request: Request) -> Response:
    """GET /openapi.json."""
    from .openapi import openapi_document

    return Response(msgspec.json.encode(openapi_document(ROUTES)), media_type="application/json")


async def show_docs(broker: Broker, caller: Caller, request: Request) -> Response:
    """GET /docs."""
    from .openapi import docs_page, openapi_document

    return Response(docs_page(openapi_document(ROUTES)), media_type="text/html; charset=utf-8")


async def session_socket(broker: Broker, caller: Caller, socket: WebSocket) -> None:
    """WS /v1/session."""
    await SessionConnection(broker, socket, caller).serve()


_AFTER = {"after": ("integer", "number of the last event that you have (0: from the beginning)")}
ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/runs", submit_run, "Submit a run", RunView, RunRequest, status=201),
    Route("GET", "/v1/runs", list_runs, "List runs, newest first", RunsDocument,
          query={"limit": ("integer", f"at most so many (100; up to {_MOST_ROWS})"),
                 "mine": ("boolean", "the caller's own only; of others' runs less is shown"),
                 "brief": ("boolean", "without results, files, notes and errors of runs that are over: much faster")}),
    Route("GET", "/v1/runs/{run}", show_run, "One run", RunRow),
    Route("GET", "/v1/runs/{run}/outcome", show_outcome,
          "One run with what came out: its owner gets the digest of the values, small ones whole", RunView,
          query={"session": ("string", "the kernel's session: the values are not collected while it is there")}),
    Route("POST", "/v1/runs/{run}/cancel", cancel_run, "Cancel a run: interrupt, the second time kill", RunRow,
          query={"kill": ("boolean", "kill at once")}),
    Route("POST", "/v1/runs/{run}/pin", pin_run, "Keep a run's results for good", RunRow),
    Route("POST", "/v1/runs/{run}/unpin", pin_run, "Let a run's results be collected again", RunRow),
    Route("GET", "/v1/runs/{run}/events", run_events, "Recorded output of a run", EventsPage, query=_AFTER,
          socket=events_socket),
    Route("POST", "/v1/leases/{lease}/release", release_lease,
          "End a warm lease (called by its run); answered when its GPUs are free", WarmRow),
    Route("POST", "/v1/leases/{lease}/extend", extend_lease, "Keep a warm lease for longer, whoever waits", WarmRow,
          LeaseExtension),
    Route("POST", "/v1/imports/{name}", import_bundle, "Make a run of what was unpacked on the store", RunRow,
          query={"exported_by": ("string", "who exported it")}),
    Route("POST", "/v1/gc", collect_runs, "Remove results by age, count and quota, and what nobody refers to",
          GcDocument,
          query={"older_than_s": ("integer", "results not used for so long"), "keep": ("integer", "runs a notebook"),
                 "quota_bytes": ("integer", "bytes a user"), "dry_run": ("boolean", "only say what would go")}),
    Route("GET", "/v1/runs/{run}/lineage", show_lineage, "What a run was made from, what was made from it", Lineage),
    Route("POST", "/v1/runs/{run}/reused", note_reuse, "Note that a run's results were bound again", RunRow, CacheUse),
    Route("POST", "/v1/cache", ask_cache, "Runs of yours with this key (--cache)", CacheAnswer, CacheQuestion),
    Route("GET", "/v1/status", show_status, "Who holds what, who waits and why; with `after`, at the next change",
          StatusDocument,
          query={"after": ("string", "`serial` of the status that you have: answered once there is another"),
                 "wait_ms": ("integer", f"milliseconds to wait for that (0; at most {LONGEST_WAIT_S * 1000:.0f})")}),
    Route("WS", "/v1/session", None, "A kernel's session (msgpack messages, see core/session_messages.py)",
          socket=session_socket),
    Route("GET", "/v1/health", show_health, "Whether runs can be taken now", Health),
    Route("GET", "/v1/checks", show_checks, "Probe each node now: its agent, the store as it sees it", NodeChecks),
    Route("POST", "/v1/tokens", create_token, "Make a user's token; its secret is told this once", TokenIssued,
          TokenRequest, status=201, admin=True),
    Route("GET", "/v1/tokens", list_tokens, "List tokens, without secrets", TokensDocument, admin=True),
    Route("POST", "/v1/tokens/revoke", revoke_tokens, "Revoke a token, or all of a user: at once, open sockets too",
          TokensDocument, TokenRevocation, admin=True),
    Route("GET", "/openapi.json", show_openapi, "This interface as an OpenAPI document"),
    Route("GET", "/docs", show_docs, "This interface as a page to read"),
)  # fmt: skip
