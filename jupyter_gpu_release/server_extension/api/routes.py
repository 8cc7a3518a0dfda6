"""The table of routes: what each answers, for Jupyter's server and for the OpenAPI document."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import quote

import msgspec

from ...checks.finding import Report
from ...client.rest import GatewayRequests
from ...errors import GatewayUnavailableError, RequestError
from ...protocol.rest import NotifyChange, NotifyDocument, RunRow, RunsDocument, WarmRow
from ..audit import Act
from ..models import (
    DOCUMENT_VERSION,
    AdviceDocument,
    CellRuns,
    ClusterStart,
    Health,
    KeepReply,
    KernelsDocument,
    OutputMessage,
    Released,
    RunPage,
    ServerStatus,
)
from .advice import advice_on
from .handlers import BASE, OutputSocket, Route, RouteHandler
from .views import is_at, newest_of_cells

#: of a notebook's code, without outputs
_NOTEBOOK_LIMIT_BYTES = 2 << 20
_MOST_RUNS = 1000
#: of which the store is asked when a notebook is opened: each is a file
_MOST_STORED = 300
_LONGEST_S = 86400.0
#: a mail server may take so long
_LONGEST_TEST_S = 50.0


def _told(request: Callable[..., Any], act: Act | None = None, subject: str = "") -> Callable[..., Awaitable[Any]]:
    """The gateway's answer to who asks; ``act`` on ``subject`` (with the path's part in it) is recorded."""

    async def answer(asked: RouteHandler, *told: Any) -> Any:
        document = await asked.gateway.ask(request, *told)
        if act is not None:
            asked.app.note_action(act, subject.format(*told), asked.username)
        return document

    return answer


async def _status(asked: RouteHandler) -> ServerStatus:
    """Answered from what is known, nobody is asked for it."""
    return await asked.app.status(asked.username, may_act=await asked.may_act())


async def _runs(asked: RouteHandler) -> RunsDocument:
    """From the gateway; of the store, if need be. Raises also :class:`StoreError`, when neither answers."""
    text = asked.get_query_argument("limit", "100")
    if not text.isdecimal() or not 0 < int(text) <= _MOST_RUNS:
        raise RequestError(f"limit={text[:20]!r} is not a number from 1 to {_MOST_RUNS}")
    mine = asked.get_query_argument("mine", "") in ("1", "true")
    line = asked.gateway
    is_gone = not line.is_there()
    if not is_gone:
        with suppress(GatewayUnavailableError):
            return await line.ask(GatewayRequests.runs, int(text), mine=mine)
    # no cluster is no fault: its runs are on the store
    return RunsDocument(DOCUMENT_VERSION, await asked.app.records.newest_stored(line, int(text), is_gone=is_gone))


async def _run(asked: RouteHandler, run: str) -> RunPage:
    """From the gateway, and from the store what that does not tell; without a cluster the store's."""
    return await asked.app.records.page(await asked.app.identities.seen_by(asked.username), run)


async def _file(asked: RouteHandler, run: str, path: str) -> None:
    """Its content, to be saved, never shown as a page of this server. Links are not followed."""
    line = await asked.app.identities.seen_by(asked.username)
    file = await asked.app.records.open_file(line, run, path)
    name = quote(path.rsplit("/", 1)[-1])
    asked.set_header("Content-Type", "application/octet-stream")
    asked.set_header("Content-Disposition", f"attachment; filename*=UTF-8''{name}")
    asked.set_header("X-Content-Type-Options", "nosniff")
    asked.set_header("Cache-Control", "no-store")
    async with aclosing(asked.app.records.chunks(file)) as chunks:
        async for chunk in chunks:
            asked.write(chunk)
            await asked.flush()


async def _cells(asked: RouteHandler) -> CellRuns:
    """The cells that a page which opens the notebook has to bring up to date."""
    notebook = asked.get_query_argument("notebook", "")
    if not notebook:
        raise RequestError("no notebook is named", hint="ask for cells?notebook=PATH")
    root = str(getattr(asked.contents_manager, "root_dir", ""))
    line = asked.gateway
    if line.is_there():
        runs = (await line.ask(GatewayRequests.runs, _MOST_RUNS, mine=True, brief=True)).runs
    else:  # its runs are on the store
        stored = await asked.app.records.newest_stored(line, _MOST_STORED, is_gone=True)
        runs = [row for row in stored if row.user == line.user or not line.user]
    rows = newest_of_cells(runs, lambda path: is_at(path, notebook, root))
    return CellRuns(DOCUMENT_VERSION, time.time(), rows)


class AdviceRequest(msgspec.Struct, frozen=True):
    """Body of ``advice``: a notebook as it is on the page (its code cells are enough), and what it is called."""

    notebook: dict[str, Any] = {}
    path: str = "the notebook"


class ExtendRequest(msgspec.Struct, frozen=True):
    """Body of ``leases/<id>/extend``: seconds from now."""

    keep_s: float = 1800.0


async def _extend(asked: RouteHandler, wanted: ExtendRequest, lease: str) -> WarmRow:
    """For at most a day. Raises :class:`RequestError` for another time."""
    _check_span(wanted.keep_s)
    answer = await asked.gateway.ask(GatewayRequests.extend_lease, lease, wanted.keep_s)
    asked.app.keep_lease(lease, answer.until)
    asked.app.note_action("extend", f"lease {lease}", asked.username)
    return answer


class ReleaseRequest(msgspec.Struct, frozen=True):
    """Body of ``kernels/<id>/release``: patterns of variables that may be moved to the host's memory."""

    names: list[str] = []


class KeepRequest(msgspec.Struct, frozen=True):
    """Body of ``kernels/<id>/keep``: seconds from now; None: as long as the server is configured for."""

    keep_s: float | None = None


async def _keep(asked: RouteHandler, wanted: KeepRequest, kernel: str) -> KeepReply:
    """For at most a day. Raises :class:`ConflictError` for a kernel that is not watched yet."""
    if wanted.keep_s is not None:
        _check_span(wanted.keep_s)
    return asked.app.keep_kernel(kernel, wanted.keep_s, asked.username)


def _check_span(keep_s: float) -> None:
    if not 0 < keep_s <= _LONGEST_S:
        raise RequestError(f"keep_s={keep_s:g} is not within 0 and {_LONGEST_S:g} seconds")


ROUTES = (
    Route("GET", "/status", "Who holds what, who waits, what is missing", ServerStatus, _status),
    Route("GET", "/health", "Answer that the extension itself works", Health, lambda asked: asked.app.health()),
    Route(
        "GET",
        "/doctor",
        "Check server, gateway and nodes now; each finding has its cure (?only=server)",
        Report,
        lambda asked: asked.app.doctor(asked.username, alone=asked.get_query_argument("only", "") == "server"),
    ),
    Route("GET", "/runs", "Runs, newest first (?limit=1…1000&mine=1: your own alone)", RunsDocument, _runs),
    Route("GET", "/cells", "The newest run of each cell of a notebook (?notebook=PATH)", CellRuns, _cells),
    Route(
        "POST",
        "/advice",
        "Which cells of a notebook are worth a GPU cell; nothing is run",
        AdviceDocument,
        lambda asked, wanted: advice_on(wanted.notebook, wanted.path),
        AdviceRequest,
        _NOTEBOOK_LIMIT_BYTES,
    ),
    Route("GET", "/runs/{id}", "All of one run: code, options, use of GPUs, lineage, files", RunPage, _run),
    Route("GET", "/runs/{id}/files/{path}", "A file of a run's folder, to be saved", None, _file),
    Route(
        "POST", "/runs/{id}/pin", "Keep a run's results for good", RunRow, _told(GatewayRequests.pin, "pin", "run {}")
    ),
    Route(
        "POST",
        "/runs/{id}/unpin",
        "Keep a run's results no longer",
        RunRow,
        _told(lambda client, run: client.pin(run, pinned=False), "unpin", "run {}"),
    ),
    Route(
        "POST",
        "/runs/{id}/cancel",
        "End a run: an interrupt, the second time a kill",
        RunRow,
        _told(GatewayRequests.cancel, "cancel", "run {}"),
    ),
    Route(
        "POST",
        "/cluster/start",
        "Start this machine's own cluster, where none is there or named",
        ClusterStart,
        lambda asked: asked.app.start_cluster(asked.username),
    ),
    Route(
        "POST",
        "/leases/{id}/release",
        "End a warm lease",
        WarmRow,
        _told(GatewayRequests.release_lease, "release", "lease {}"),
    ),
    Route("POST", "/leases/{id}/extend", "Keep a warm lease for longer", WarmRow, _extend, ExtendRequest),
    Route("GET", "/notify", "How you are told of your detached runs", NotifyDocument, _told(GatewayRequests.notify)),
    Route(
        "POST",
        "/notify",
        "Change how you are told of your detached runs",
        NotifyDocument,
        _told(GatewayRequests.change_notify, "change", "notifications"),
        NotifyChange,
    ),
    Route(
        "POST",
        "/notify/test",
        "Send yourself a message by each way now",
        NotifyDocument,
        _told(lambda client: client.test_notify(_LONGEST_TEST_S)),
    ),
    Route(
        "GET",
        "/kernels",
        "GPU memory of this server's kernels, and what the policy decides",
        KernelsDocument,
        lambda asked: asked.app.kernels(),
    ),
    Route(
        "POST",
        "/kernels/{id}/release",
        "Ask a kernel's GPU libraries to let go",
        Released,
        lambda asked, wanted, kernel: asked.app.release(kernel, wanted.names, asked.username),
        ReleaseRequest,
    ),
    Route("POST", "/kernels/{id}/keep", "Answer a warning: leave this kernel alone", KeepReply, _keep, KeepRequest),
)
#: the one route that is a WebSocket: path, what it says, its messages
OUTPUT = ("/runs/{id}/output", "WebSocket: changes of its cell's outputs, then the receipt", OutputMessage)


def pattern_of(path: str) -> str:
    """The path for Jupyter's server: an id is letters, digits and dashes, a file's path anything."""
    return BASE + path.replace("{id}", r"([\w-]+)").replace("{path}", "(.+)")


def _handlers() -> list[tuple[Any, ...]]:
    by_path: dict[str, dict[str, Route]] = defaultdict(dict)
    for route in ROUTES:
        by_path[route.path][route.method] = route
    served = [(pattern_of(path), RouteHandler, {"routes": routes}) for path, routes in by_path.items()]
    return [*served, (pattern_of(OUTPUT[0]), OutputSocket)]


#: path pattern (below the server's base URL), handler, its arguments
HANDLERS = _handlers()
