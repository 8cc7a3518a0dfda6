"""Routes of the extension and their base handler."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import quote

import msgspec
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.extension.handler import ExtensionHandlerMixin
from jupyter_server.utils import ensure_async
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ...errors import GatewayUnavailableError, GpuReleaseError, NoSuchRunError, RequestError
from ...protocol.rest import NotifyChange, RunsDocument
from ..models import DOCUMENT_VERSION, CellRuns, OutputMessage
from ..outputs.following import follow
from .advice import advice_on
from .views import is_at, newest_of_cells

if TYPE_CHECKING:
    from ...checks.finding import Report
    from ..audit import Act
    from ..gateway import GatewayConnection
    from ..models import ClusterStart, Health, KeepReply, KernelsDocument, Released, ServerStatus
    from ..runs.page import RunRecords
    from ..user_tokens import UserConnections

#: what an authoriser is asked about
AUTH_RESOURCE = "gpu_release"
_BODY_LIMIT_BYTES = 64 << 10
#: of a notebook's code, without outputs
_NOTEBOOK_LIMIT_BYTES = 2 << 20
T = TypeVar("T")


class Application(Protocol):
    """The extension, as its routes see it. Called on the server's event loop; only the coroutines may take long."""

    identities: UserConnections
    records: RunRecords

    async def status(self, user: str, *, may_act: bool = True) -> ServerStatus:
        """``GET status`` as ``user`` may see it."""

    def health(self) -> Health:
        """``GET health``."""

    async def doctor(self, user: str, *, alone: bool) -> Report:
        """``GET doctor`` as ``user`` may see it; ``alone``: of this server only."""

    def kernels(self) -> KernelsDocument:
        """``GET kernels``."""

    def start_cluster(self, user: str) -> ClusterStart:
        """``POST cluster/start``."""

    async def release(self, kernel: str, patterns: list[str], user: str) -> Released:
        """``POST kernels/<id>/release``."""

    def keep_kernel(self, kernel: str, keep_s: float | None, user: str) -> KeepReply:
        """``POST kernels/<id>/keep``."""

    def keep_lease(self, lease: str, until: float) -> None:
        """``POST leases/<id>/extend``."""

    def note_action(self, action: Act, subject: str, user: str, result: str = "") -> None:
        """Record what a person did."""


class GpuRoute(ExtensionHandlerMixin, JupyterHandler):
    """Things that all routes share, requests and sockets."""

    auth_resource = AUTH_RESOURCE

    @property
    def app(self) -> Application:
        """The extension that holds all state."""
        return cast("Application", self.extensionapp)

    @property
    def username(self) -> str:
        """Jupyter's name of who asks."""
        return str(self.current_user.username)

    @property
    def gateway(self) -> GatewayConnection:
        """The line that speaks for who asks; raises :class:`ForbiddenError` when there is none."""
        return self.app.identities.line_of(self.username)

    def answer(self, document: Any) -> None:
        """Finish with a record as JSON."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(document))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Our own errors as ``{"error": {"code", "message", "mend"}, "message"}``; others as Jupyter writes them."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if not isinstance(error, GpuReleaseError):
            super().write_error(status_code, **kwargs)
            return
        self.set_status(error.http_status)
        facts = {"code": error.code, "message": error.message, "mend": error.hint}
        self.answer({"error": facts, "message": error.message})

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        """Refusals are answers, not faults of the server."""
        if isinstance(value, GpuReleaseError):
            self.log.debug("refused %s: %s", self.request.path, value.message)
        else:
            super().log_exception(kind, value, traceback)


class GpuHandler(GpuRoute, APIHandler):
    """Base of the extension's handlers. Each verb of a subclass is authenticated and authorised by decorators."""

    async def may_act(self) -> bool:
        """Tell if the authoriser lets who asks change something here."""
        said = self.authorizer.is_authorized(self, self.current_user, "write", AUTH_RESOURCE)
        return bool(await ensure_async(said))

    def body(self, kind: type[T], default: T, limit_bytes: int = _BODY_LIMIT_BYTES) -> T:
        """The request's body as a record; raises :class:`RequestError` for anything else."""
        content = self.request.body
        if not content:
            return default
        if len(content) > limit_bytes:
            raise RequestError(f"the body is larger than {limit_bytes} bytes")
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RequestError(f"the body is not what this route takes: {error}", hint="see docs/openapi") from error


BASE = "/jupyter-gpu-release/api"
_MOST_RUNS = 1000
#: of which the store is asked when a notebook is opened: each is a file
_MOST_STORED = 300
_LONGEST_S = 86400.0
#: a mail server may take so long
_LONGEST_TEST_S = 50.0


class StatusHandler(GpuHandler):
    """The status: who holds what, who waits, what is missing."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET status: answered from what is known, nobody is asked for it."""
        self.answer(await self.app.status(self.username, may_act=await self.may_act()))


class HealthHandler(GpuHandler):
    """Answer that the extension itself works."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET health: which loops of the extension run, and seconds since the last look."""
        self.answer(self.app.health())


class DoctorHandler(GpuHandler):
    """Checks of this server, the gateway and the nodes, each finding with what to do about it."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET doctor: everything is looked at now, with ``only=server`` this server alone; takes 45 s at most."""
        alone = self.get_query_argument("only", "") == "server"
        self.answer(await self.app.doctor(self.username, alone=alone))


class RunsHandler(GpuHandler):
    """Runs, newest first; with ``mine`` those of who asks alone."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET runs: ``limit`` of them (1 to 1000; 100), with ``mine=1`` those of who asks; of the store, if need be.

        Raises
        ------
        RequestError
            ``limit`` is no such number.
        ForbiddenError, StoreError
            There is no token for who asks, or neither gateway nor store answers.
        """
        text = self.get_query_argument("limit", "100")
        if not text.isdecimal() or not 0 < int(text) <= _MOST_RUNS:
            raise RequestError(f"limit={text[:20]!r} is not a number from 1 to {_MOST_RUNS}")
        mine = self.get_query_argument("mine", "") in ("1", "true")
        line = self.gateway
        is_gone = not line.is_there()
        if not is_gone:
            with suppress(GatewayUnavailableError):
                self.answer(await line.ask(lambda client: client.runs(int(text), mine=mine)))
                return
        # no cluster is no fault: its runs are on the store
        rows = await self.app.records.newest_stored(line, int(text), is_gone=is_gone)
        self.answer(RunsDocument(DOCUMENT_VERSION, rows))


class RunHandler(GpuHandler):
    """All of one run: its facts, code, options, use of GPUs, lineage and files."""

    @web.authenticated
    @authorized
    async def get(self, run: str) -> None:
        """GET runs/<id>: from the gateway, and from the store what that does not tell; without a cluster the store's.

        Raises
        ------
        NoSuchRunError, ForbiddenError, GatewayUnavailableError
            There is no such run, it is another user's, or nobody answers.
        """
        line = await self.app.identities.seen_by(self.username)
        self.answer(await self.app.records.page(line, run))


class RunFileHandler(GpuHandler):
    """A file of a run's ``run_dir``."""

    @web.authenticated
    @authorized
    async def get(self, run: str, path: str) -> None:
        """GET runs/<id>/files/PATH: its content, to be saved, never shown as a page of this server.

        Raises
        ------
        NoSuchRunError, ForbiddenError
            There is no such plain file (links are not followed), or the run is another user's.
        """
        line = await self.app.identities.seen_by(self.username)
        file = await self.app.records.open_file(line, run, path)
        name = quote(path.rsplit("/", 1)[-1])
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Disposition", f"attachment; filename*=UTF-8''{name}")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        async with aclosing(self.app.records.chunks(file)) as chunks:
            async for chunk in chunks:
                self.write(chunk)
                await self.flush()


class PinHandler(GpuHandler):
    """Keep a run's results for good, or no longer."""

    @web.authenticated
    @authorized
    async def post(self, run: str, word: str) -> None:
        """POST runs/<id>/pin or runs/<id>/unpin: answered with the run as it is then.

        Raises
        ------
        NoSuchRunError, ForbiddenError, GatewayUnavailableError
            There is no such run, it is another user's, or the gateway does not answer.
        """
        row = await self.gateway.ask(lambda client: client.pin(run, pinned=word == "pin"))
        self.app.note_action("pin" if word == "pin" else "unpin", f"run {run}", self.username)
        self.answer(row)


class CellsHandler(GpuHandler):
    """The newest run of each cell of a notebook: what a page that opens it has to bring up to date."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET cells?notebook=PATH (as the contents API names it)."""
        notebook = self.get_query_argument("notebook", "")
        if not notebook:
            raise RequestError("no notebook is named", hint="ask for cells?notebook=PATH")
        root = str(getattr(self.contents_manager, "root_dir", ""))
        line = self.gateway
        if line.is_there():
            runs = (await line.ask(lambda client: client.runs(_MOST_RUNS, mine=True, brief=True))).runs
        else:  # its runs are on the store
            stored = await self.app.records.newest_stored(line, _MOST_STORED, is_gone=True)
            runs = [row for row in stored if row.user == line.user or not line.user]
        rows = newest_of_cells(runs, lambda path: is_at(path, notebook, root))
        self.answer(CellRuns(DOCUMENT_VERSION, time.time(), rows))


class AdviceRequest(msgspec.Struct, frozen=True):
    """Body of ``advice``: a notebook as it is on the page (its code cells are enough), and what it is called."""

    notebook: dict[str, Any] = {}
    path: str = "the notebook"


class AdviceHandler(GpuHandler):
    """Advice on a notebook: which cells are worth a GPU cell; nothing of it is run."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """POST advice: read from the content that is sent, saved or not.

        Raises
        ------
        RequestError
            The content is too large.
        OptionError
            It is no notebook with Python code.
        """
        wanted = self.body(AdviceRequest, AdviceRequest(), _NOTEBOOK_LIMIT_BYTES)
        self.answer(await advice_on(wanted.notebook, wanted.path))


class OutputSocket(GpuRoute, WebSocketMixin, WebSocketHandler, JupyterHandler):
    """Changes of the outputs of a run's cell, until the run is over; one that nobody knows is ``gone``."""

    _sending: asyncio.Task[None] | None = None

    @ws_authenticated
    async def get(self, run: str) -> None:
        """WS runs/<id>/output."""
        said = self.authorizer.is_authorized(self, self.current_user, "read", AUTH_RESOURCE)
        if not await ensure_async(said):
            raise web.HTTPError(403)
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise RequestError("this route is a WebSocket")
        await super().get(run)

    def open(self, run: str) -> None:
        """Begin to send."""
        super().open(run)
        self.set_nodelay(True)  # a message right behind another would wait 40 ms for the browser's acknowledgement
        self._sending = asyncio.create_task(self._send(run), name=f"output of {run} for a page")

    def on_message(self, message: str | bytes) -> None:
        """Nothing: the page only listens."""

    def on_close(self) -> None:
        """End with the page."""
        super().on_close()
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self, run: str) -> None:
        try:
            with suppress(WebSocketClosedError):
                await self._tell(run)
        except Exception:  # nobody else hears of this task
            self.log.exception("the output of run %s cannot be shown", run)
            with suppress(WebSocketClosedError):
                await self._say(OutputMessage(problem="the Jupyter server's log says what went wrong"))
        finally:
            self.close()

    async def _tell(self, run: str) -> None:
        try:
            line = await self.app.identities.seen_by(self.username)
            async with aclosing(follow(line, run, self.app.records.threads)) as messages:
                async for message in messages:
                    await self._say(message)
        except NoSuchRunError as error:
            await self._say(OutputMessage(gone=error.message))
        except GpuReleaseError as error:  # may pass, or be for this user alone: the document stays as it is
            await self._say(OutputMessage(problem=error.message))

    async def _say(self, message: OutputMessage) -> None:
        await self.write_message(msgspec.json.encode(message).decode())


class CancelHandler(GpuHandler):
    """End a run: an interrupt first, the second time a kill."""

    @web.authenticated
    @authorized
    async def post(self, run: str) -> None:
        """POST runs/<id>/cancel: answered with the run as it is then, which may go on for a moment.

        Raises
        ------
        NoSuchRunError, ForbiddenError, GatewayUnavailableError
            There is no such run, it is another user's, or the gateway does not answer.
        """
        row = await self.gateway.ask(lambda client: client.cancel(run))
        self.app.note_action("cancel", f"run {run}", self.username)
        self.answer(row)


class ClusterStartHandler(GpuHandler):
    """Start this machine's own cluster."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """POST cluster/start: answered at once; the status says how far it is.

        Raises
        ------
        ConflictError
            A cluster is there, another gateway is named, or this server's configuration forbids it.
        """
        self.answer(self.app.start_cluster(self.username))


class LeaseReleaseHandler(GpuHandler):
    """End a warm lease."""

    @web.authenticated
    @authorized
    async def post(self, lease: str) -> None:
        """POST leases/<id>/release: answered when its GPUs are free.

        Raises
        ------
        NoSuchRunError, ForbiddenError, ConflictError
            There is no such lease, it is another user's, or it is not warm.
        """
        answer = await self.gateway.ask(lambda client: client.release_lease(lease))
        self.app.note_action("release", f"lease {lease}", self.username)
        self.answer(answer)


class ExtendRequest(msgspec.Struct, frozen=True):
    """Body of ``leases/<id>/extend``: seconds from now."""

    keep_s: float = 1800.0


class LeaseExtendHandler(GpuHandler):
    """Keep a warm lease for longer."""

    @web.authenticated
    @authorized
    async def post(self, lease: str) -> None:
        """POST leases/<id>/extend: for ``keep_s`` seconds from now (at most a day).

        Raises
        ------
        RequestError
            ``keep_s`` is out of range.
        NoSuchRunError, ForbiddenError, ConflictError
            There is no such lease, it is another user's, or it is not warm.
        """
        wanted = self.body(ExtendRequest, ExtendRequest())
        _check_span(wanted.keep_s)
        answer = await self.gateway.ask(lambda client: client.extend_lease(lease, wanted.keep_s))
        self.app.keep_lease(lease, answer.until)
        self.app.note_action("extend", f"lease {lease}", self.username)
        self.answer(answer)


class NotifyHandler(GpuHandler):
    """How who asks is told of detached runs: by the gateway, by mail and webhooks."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET notify: of a webhook its host alone.

        Raises
        ------
        ForbiddenError, GatewayUnavailableError
            There is no token for who asks, or the gateway does not answer.
        """
        self.answer(await self.gateway.ask(lambda client: client.notify()))

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """POST notify: change it; what is not named stays, empty text ends that way.

        Raises
        ------
        OptionError
            The address is none, or the operator allows no such one.
        """
        change = self.body(NotifyChange, NotifyChange())
        answer = await self.gateway.ask(lambda client: client.change_notify(change))
        self.app.note_action("change", "notifications", self.username)
        self.answer(answer)


class NotifyTestHandler(GpuHandler):
    """Send who asks a message now."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """POST notify/test: by each way; answered when it was taken or refused."""
        self.answer(await self.gateway.ask(lambda client: client.test_notify(_LONGEST_TEST_S)))


class KernelsHandler(GpuHandler):
    """This server's kernels: what they hold, whether they are at work, what the policy means to do."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET kernels: bytes of GPU memory, seconds of idleness, and the policy's next action for each."""
        self.answer(self.app.kernels())


class ReleaseRequest(msgspec.Struct, frozen=True):
    """Body of ``kernels/<id>/release``: patterns of variables that may be moved to the host's memory."""

    names: list[str] = []


class KernelReleaseHandler(GpuHandler):
    """Ask a kernel's GPU libraries to let go of memory; refused while a cell runs."""

    @web.authenticated
    @authorized
    async def post(self, kernel: str) -> None:
        """POST kernels/<id>/release: answered with the bytes that were freed.

        Raises
        ------
        NoSuchRunError
            This server has no such kernel.
        ConflictError
            A cell runs in it, it is no Python kernel, or it does not answer.
        """
        wanted = self.body(ReleaseRequest, ReleaseRequest())
        self.answer(await self.app.release(kernel, wanted.names, self.username))


class KeepRequest(msgspec.Struct, frozen=True):
    """Body of ``kernels/<id>/keep``: seconds from now; None: as long as the server is configured for."""

    keep_s: float | None = None


class KernelKeepHandler(GpuHandler):
    """The answer to a warning: leave this kernel alone for a while."""

    @web.authenticated
    @authorized
    async def post(self, kernel: str) -> None:
        """POST kernels/<id>/keep: for ``keep_s`` seconds from now (at most a day).

        Raises
        ------
        RequestError
            ``keep_s`` is out of range.
        NoSuchRunError, ConflictError
            This server has no such kernel, or does not watch it yet.
        """
        wanted = self.body(KeepRequest, KeepRequest())
        if wanted.keep_s is not None:
            _check_span(wanted.keep_s)
        self.answer(self.app.keep_kernel(kernel, wanted.keep_s, self.username))


def _check_span(keep_s: float) -> None:
    if not 0 < keep_s <= _LONGEST_S:
        raise RequestError(f"keep_s={keep_s:g} is not within 0 and {_LONGEST_S:g} seconds")


_ID = r"([\w-]+)"
#: path pattern (below the server's base URL) and handler
HANDLERS: list[tuple[str, type[JupyterHandler]]] = [
    (rf"{BASE}/status", StatusHandler),
    (rf"{BASE}/health", HealthHandler),
    (rf"{BASE}/doctor", DoctorHandler),
    (rf"{BASE}/runs", RunsHandler),
    (rf"{BASE}/cells", CellsHandler),
    (rf"{BASE}/advice", AdviceHandler),
    (rf"{BASE}/runs/{_ID}", RunHandler),
    (rf"{BASE}/runs/{_ID}/files/(.+)", RunFileHandler),
    (rf"{BASE}/runs/{_ID}/(pin|unpin)", PinHandler),
    (rf"{BASE}/runs/{_ID}/output", OutputSocket),
    (rf"{BASE}/runs/{_ID}/cancel", CancelHandler),
    (rf"{BASE}/cluster/start", ClusterStartHandler),
    (rf"{BASE}/leases/{_ID}/release", LeaseReleaseHandler),
    (rf"{BASE}/leases/{_ID}/extend", LeaseExtendHandler),
    (rf"{BASE}/notify", NotifyHandler),
    (rf"{BASE}/notify/test", NotifyTestHandler),
    (rf"{BASE}/kernels", KernelsHandler),
    (rf"{BASE}/kernels/{_ID}/release", KernelReleaseHandler),
    (rf"{BASE}/kernels/{_ID}/keep", KernelKeepHandler),
]
