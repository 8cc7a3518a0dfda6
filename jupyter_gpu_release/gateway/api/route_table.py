"""The route table."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from ...protocol.admin import GcDocument, NodeDrain, TokenIssued, TokenRequest, TokenRevocation, TokensDocument
from ...protocol.environments import (
    BuildProgress,
    ClusterPackages,
    EnvironmentBuilt,
    EnvironmentRemoval,
    EnvironmentsDocument,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
    WheelSent,
)
from ...protocol.lineage import CacheAnswer, CacheQuestion, CacheUse, Lineage
from ...protocol.rest import (
    EstimateDocument,
    EstimateQuestion,
    EventsPage,
    Health,
    LeaseExtension,
    NodeChecks,
    NotifyChange,
    NotifyDocument,
    QueuesDocument,
    ReportDocument,
    RunRow,
    RunsDocument,
    StatusDocument,
    WarmRow,
)
from ...protocol.runs import RunRequest, RunView
from ..auth.permissions import Caller
from ..service import GatewayService
from ..status_feed import LONGEST_WAIT_S
from .events import events_socket, run_events
from .guard import TURNS
from .handlers import (
    MOST_ROWS,
    ask_cache,
    ask_estimate,
    build_environment,
    cancel_run,
    change_notify,
    check_packages,
    collect_runs,
    drain_node,
    extend_lease,
    import_bundle,
    list_environments,
    list_runs,
    note_reuse,
    pin_run,
    preempt_run,
    release_lease,
    remove_environment,
    resolve_packages,
    resume_node,
    send_wheel,
    show_build,
    show_checks,
    show_estimate,
    show_health,
    show_lineage,
    show_notify,
    show_outcome,
    show_packages,
    show_queues,
    show_report,
    show_run,
    show_status,
    submit_run,
    try_notify,
)
from .route import Route
from .session import SessionConnection
from .tokens import create_token, list_tokens, revoke_tokens


async def show_openapi(service: GatewayService, caller: Caller, request: Request) -> Response:
    """GET /openapi.json."""
    from .openapi import openapi_document

    return Response(msgspec.json.encode(openapi_document(ROUTES)), media_type="application/json")


async def session_socket(service: GatewayService, caller: Caller, socket: WebSocket) -> None:
    """WS /v1/session."""
    await SessionConnection(service, socket, caller, socket.scope[TURNS]).serve()


_AFTER = {"after": ("integer", "number of the last event that you have (0: from the beginning)")}
ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/runs", submit_run, "Submit a run", RunView, RunRequest, status=201),
    Route(
        "GET",
        "/v1/runs",
        list_runs,
        "List runs, newest first",
        RunsDocument,
        query={
            "limit": ("integer", f"at most so many (100; up to {MOST_ROWS})"),
            "mine": ("boolean", "the caller's own only; of others' runs less is shown"),
            "brief": ("boolean", "without results, files, notes and errors of runs that are over: much faster"),
            "sweep": ("string", "only the trials of this sweep (several: `a,b`), and the run that drives it"),
        },
    ),
    Route("GET", "/v1/runs/{run}", show_run, "One run", RunRow),
    Route(
        "GET",
        "/v1/runs/{run}/outcome",
        show_outcome,
        "One run with what came out: its owner gets the digest of the values, small ones whole",
        RunView,
        query={"session": ("string", "the kernel's session: the values are not collected while it is there")},
    ),
    Route(
        "POST",
        "/v1/runs/{run}/cancel",
        cancel_run,
        "Cancel a run: interrupt, the second time kill",
        RunRow,
        query={"kill": ("boolean", "kill at once")},
    ),
    Route(
        "POST",
        "/v1/runs/{run}/preempt",
        preempt_run,
        "Preempt a restartable run: it is saved, and goes on later",
        RunRow,
    ),
    Route("POST", "/v1/runs/{run}/pin", pin_run, "Keep a run's results for good", RunRow),
    Route("POST", "/v1/runs/{run}/unpin", pin_run, "Let a run's results be collected again", RunRow),
    Route(
        "GET",
        "/v1/runs/{run}/events",
        run_events,
        "Recorded output of a run",
        EventsPage,
        query=_AFTER,
        socket=events_socket,
    ),
    Route(
        "POST",
        "/v1/leases/{lease}/release",
        release_lease,
        "End a warm lease (called by its run); answered when its GPUs are free",
        WarmRow,
    ),
    Route(
        "POST",
        "/v1/leases/{lease}/extend",
        extend_lease,
        "Keep a warm lease for longer, whoever waits",
        WarmRow,
        LeaseExtension,
    ),
    Route(
        "POST",
        "/v1/imports/{name}",
        import_bundle,
        "Make a run of what was unpacked on the store",
        RunRow,
        query={"exported_by": ("string", "who exported it")},
    ),
    Route(
        "POST",
        "/v1/gc",
        collect_runs,
        "Remove results by age, count and quota, and what nobody refers to",
        GcDocument,
        query={
            "older_than_s": ("integer", "results not used for so long"),
            "keep": ("integer", "runs a notebook"),
            "quota_bytes": ("integer", "bytes a user"),
            "dry_run": ("boolean", "only say what would go"),
        },
    ),
    Route("GET", "/v1/runs/{run}/lineage", show_lineage, "Runs that this one was made from, and made from it", Lineage),
    Route("POST", "/v1/runs/{run}/reused", note_reuse, "Note that a run's results were bound again", RunRow, CacheUse),
    Route("POST", "/v1/cache", ask_cache, "Runs of yours with this key (--cache)", CacheAnswer, CacheQuestion),
    Route("GET", "/v1/packages", show_packages, "Packages that are installed on the nodes", ClusterPackages),
    Route(
        "POST",
        "/v1/packages/check",
        check_packages,
        "Ask if nodes can get the packages of an environment, and which wheels are to be sent",
        PackagesAnswer,
        Plan,
    ),
    Route(
        "POST",
        "/v1/packages/resolve",
        resolve_packages,
        "Find versions of packages that go with the nodes' own",
        Versions,
        Question,
    ),
    Route(
        "POST",
        "/v1/packages/wheels/{digest}",
        send_wheel,
        "Send a wheel of the notebook's own, as it is, by its digest (`sha256:…`)",
        WheelSent,
    ),
    Route(
        "GET",
        "/v1/environments",
        list_environments,
        "Environments that are ready on nodes",
        EnvironmentsDocument,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/environments/build",
        build_environment,
        "Build an environment on all nodes, before somebody needs it",
        EnvironmentBuilt,
        Plan,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/environments/progress",
        show_build,
        "How many packages the nodes have that build an environment now",
        BuildProgress,
        Plan,
        admin=True,
    ),
    Route(
        "POST",
        "/v1/environments/remove",
        remove_environment,
        "Remove an environment on all nodes; what is in use stays, and is the answer",
        EnvironmentsDocument,
        EnvironmentRemoval,
        admin=True,
    ),
    Route(
        "GET",
        "/v1/status",
        show_status,
        "Who holds what, who waits and why; with `after`, at the next change",
        StatusDocument,
        query={
            "after": ("string", "`serial` of the status that you have: answered once there is another"),
            "wait_ms": ("integer", f"milliseconds to wait for that (0; at most {LONGEST_WAIT_S * 1000:.0f})"),
        },
    ),
    Route(
        "GET", "/v1/notify", show_notify, "How you are told of your detached runs, and how you may be", NotifyDocument
    ),
    Route(
        "POST",
        "/v1/notify",
        change_notify,
        "Change how you are told of your detached runs",
        NotifyDocument,
        NotifyChange,
    ),
    Route("POST", "/v1/notify/test", try_notify, "Send yourself a message by each way now", NotifyDocument),
    Route(
        "GET", "/v1/queues", show_queues, "The tree of queues: guarantees, use, fair shares, who waits", QueuesDocument
    ),
    Route(
        "POST",
        "/v1/outlook",
        ask_estimate,
        "When a run would start that asks for this, and what would start sooner",
        EstimateDocument,
        EstimateQuestion,
    ),
    Route(
        "GET",
        "/v1/runs/{run}/outlook",
        show_estimate,
        "When a waiting run will start, and what would start sooner",
        EstimateDocument,
    ),
    Route(
        "GET",
        "/v1/report",
        show_report,
        "GPU-hours that the caller's runs held, and their price; for admins everybody's",
        ReportDocument,
        query={"seconds": ("integer", "up to now (2592000: 30 days)")},
    ),
    Route(
        "WS",
        "/v1/session",
        None,
        "A kernel's session (msgpack messages, see protocol/session.py)",
        socket=session_socket,
    ),
    Route("GET", "/v1/health", show_health, "Answer if runs can be taken now", Health),
    Route("GET", "/v1/checks", show_checks, "Probe each node now: its agent, the store as it sees it", NodeChecks),
    Route("POST", "/v1/nodes/drain", drain_node, "Give a node no new runs", StatusDocument, NodeDrain, admin=True),
    Route("POST", "/v1/nodes/resume", resume_node, "Give runs to a node again", StatusDocument, NodeDrain, admin=True),
    Route(
        "POST",
        "/v1/tokens",
        create_token,
        "Make a user's token; its secret is told this once",
        TokenIssued,
        TokenRequest,
        status=201,
        admin=True,
    ),
    Route("GET", "/v1/tokens", list_tokens, "List tokens, without secrets", TokensDocument, admin=True),
    Route(
        "POST",
        "/v1/tokens/revoke",
        revoke_tokens,
        "Revoke a token, or all of a user: at once, open sockets too",
        TokensDocument,
        TokenRevocation,
        admin=True,
    ),
    Route("GET", "/openapi.json", show_openapi, "This interface as an OpenAPI document"),
)
