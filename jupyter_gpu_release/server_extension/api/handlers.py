"""Handlers: one for every route of the table (:mod:`.routes`), and the socket of a run's output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.extension.handler import ExtensionHandlerMixin
from jupyter_server.utils import ensure_async
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ...errors import GpuReleaseError, NoSuchRunError, RequestError
from ..models import OutputMessage
from ..outputs.following import follow

if TYPE_CHECKING:
    from ...checks.finding import Report
    from ..audit import Act
    from ..gateway import GatewayConnection
    from ..models import ClusterStart, Health, KeepReply, KernelsDocument, Released, ServerStatus
    from ..runs.page import RunRecords
    from ..user_tokens import UserConnections

#: what an authoriser is asked about
AUTH_RESOURCE = "gpu_release"
#: what all routes begin with, below the server's base URL
BASE = "/jupyter-gpu-release/api"
_BODY_LIMIT_BYTES = 64 << 10


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


@dataclass(frozen=True)
class Route:
    """One verb of one path below :data:`BASE`. ``response`` and ``body`` are record types; a body may be left out.

    ``answer`` gets the handler, the body where there is one, and the parts of the path. It returns the document (or an
    awaitable of it), or None when it has written the answer itself. A :class:`.GpuReleaseError` is an answer, too.
    """

    method: str
    path: str
    summary: str
    response: Any
    answer: Callable[..., Any]
    body: Any = None
    body_limit_bytes: int = _BODY_LIMIT_BYTES


class RouteHandler(GpuRoute, APIHandler):
    """Answers for all routes of one path. Each verb is authenticated and authorised before its route is looked up."""

    def initialize(self, name: str, routes: Mapping[str, Route]) -> None:
        """Called for each request; ``routes``: by verb."""
        super().initialize(name)
        self._routes = routes

    @web.authenticated
    @authorized
    async def get(self, *parts: str) -> None:
        """Answer, reading."""
        await self._serve("GET", parts)

    @web.authenticated
    @authorized
    async def post(self, *parts: str) -> None:
        """Answer, changing something."""
        await self._serve("POST", parts)

    async def _serve(self, verb: str, parts: tuple[str, ...]) -> None:
        route = self._routes.get(verb)
        if route is None:
            raise web.HTTPError(405)
        body = () if route.body is None else (self._body(route),)
        document = await ensure_async(route.answer(self, *body, *parts))
        if document is not None:
            self.answer(document)

    def _body(self, route: Route) -> Any:
        content = self.request.body
        if not content:
            return route.body()
        if len(content) > route.body_limit_bytes:
            raise RequestError(f"the body is larger than {route.body_limit_bytes} bytes")
        try:
            return msgspec.json.decode(content, type=route.body)
        except (msgspec.MsgspecError, RecursionError) as error:
            hint = "`jupyter gpu docs idle-policy` names the file that describes all routes"
            raise RequestError(f"the body is not what this route takes: {error}", hint=hint) from error

    async def may_act(self) -> bool:
        """Tell if the authoriser lets who asks change something here."""
        said = self.authorizer.is_authorized(self, self.current_user, "write", AUTH_RESOURCE)
        return bool(await ensure_async(said))


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
