"""The Starlette application on uvicorn; sockets end with their token."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, WebSocketRoute
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from ...errors import ConflictError, ForbiddenError, GpuReleaseError, NoSuchRunError, RequestError
from ...settings.built_in import BUILT_IN
from ..auth.permissions import Caller
from ..service import GatewayService
from .guard import CALLER, RequestGuard, error_response
from .http_connection import HttpConnection, TlsListener, WaitingConnections, WebSocketConnection
from .route import Route

log = logging.getLogger(__name__)
#: WebSocket close code "policy violation"
_POLICY = 1008
_CLOSING_S = 1.0


async def until_token_ends(service: GatewayService, caller: Caller, socket: WebSocket, work: Awaitable[None]) -> None:
    """Serve a socket by ``work`` until that ends; a token that is revoked or expires ends it at once.

    The reason is in the closing frame; a client that comes back is refused with it (401). A kernel's session is then
    treated as closed: its runs end after the reconnect grace, detached ones go on.
    """
    serving = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(service.tokens.until_over(caller))
    try:
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            reason = ending.result().message
            log.info("a socket of %s is closed: %s", caller.user, reason)
            service.audit.write_entry(caller, "socket.close", detail=reason)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError):
                await asyncio.wait_for(socket.close(_POLICY, reason), _CLOSING_S)
            serving.cancel()
        await serving
    except asyncio.CancelledError:
        if not serving.cancelled():
            raise
    finally:
        ending.cancel()
        serving.cancel()


#: bytes of a REST request's body at most (a submission with its inline inputs and shipped modules)
BODY_LIMIT_BYTES: int = BUILT_IN["request_body_bytes"].default
#: one message from a kernel at most (inputs of ≤ 1 MiB inline, shipped modules, source)
_FRAME_LIMIT_BYTES: int = BUILT_IN["message_bytes"].default
#: an idle connection is closed by the client, never first by us: a request could be on its way just then. uvicorn's own
#: 5 s are exactly what httpx takes a connection to last; browsers and proxies keep them for a minute
KEEP_ALIVE_S = 90


def build_app(service: GatewayService, routes: Iterable[Route]) -> ASGIApp:
    """The guarded application."""
    table: list[HttpRoute | WebSocketRoute] = []
    for route in routes:
        if route.handler is not None:
            table.append(HttpRoute(route.path, _http_endpoint(service, route), methods=[route.method]))
        if route.socket is not None:
            table.append(WebSocketRoute(route.path, _socket_endpoint(service, route)))
            if route.handler is None:
                table.append(HttpRoute(route.path, _without_upgrade, methods=["GET"]))
    handlers: dict[Any, Any] = {
        HTTPException: _on_http_error,
        GpuReleaseError: _on_refusal,
        ClientDisconnect: _on_gone,
        Exception: _on_fault,
    }
    app = Starlette(routes=table, exception_handlers=handlers)
    return RequestGuard(app, service, BODY_LIMIT_BYTES, partial(_name_of, table))


def _name_of(table: Iterable[HttpRoute | WebSocketRoute], scope: Scope) -> str:
    """The route that is asked for, by its template: what clients write into the path is not repeated."""
    path = next((route.path for route in table if route.matches(scope)[0] is Match.FULL), "an unknown path")
    return f"{scope.get('method', 'WS')} {path}"


def _check_role(service: GatewayService, route: Route, caller: Caller) -> None:
    if route.admin and not caller.is_admin:
        service.audit.write_entry(caller, f"{route.method} {route.path}", result=ForbiddenError.code)
        raise ForbiddenError(
            f"{route.method} {route.path} ({route.summary.rstrip('.')}) is for admins, and {caller.user} is not one",
            hint="ask an admin",
        )
    if not caller.may_ask(route.method, route.path):
        service.audit.write_entry(caller, f"{route.method} {route.path}", result=ForbiddenError.code)
        raise ForbiddenError(
            f"{route.method} {route.path} is not for {'a sweep' if caller.sweep else 'an assistant'}'s token",
            hint=f"use a token of {caller.user}'s own",
        )


def _http_endpoint(service: GatewayService, route: Route) -> Callable[[Request], Awaitable[Response]]:
    handler = route.handler
    assert handler is not None

    async def endpoint(request: Request) -> Response:
        _check_role(service, route, request.scope[CALLER])
        answer = await handler(service, request.scope[CALLER], request)
        if route.method != "GET":  # what was answered is still true after a restart
            await service.ledger.drain()
        if isinstance(answer, Response):
            return answer
        return Response(msgspec.json.encode(answer), route.status, media_type="application/json")

    return endpoint


def _socket_endpoint(service: GatewayService, route: Route) -> Callable[[WebSocket], Awaitable[None]]:
    handler = route.socket
    assert handler is not None

    async def endpoint(websocket: WebSocket) -> None:
        caller = websocket.scope[CALLER]
        _check_role(service, route, caller)
        await until_token_ends(service, caller, websocket, handler(service, caller, websocket))

    return endpoint


async def _without_upgrade(request: Request) -> Response:
    """Answers what came as a WebSocket's request and is none any more."""
    raise RequestError(
        f"{request.method} {request.url.path}: no WebSocket. A proxy in between takes its headers off",
        hint="have it pass on `Upgrade` and `Connection`: `jupyter gpu docs operate/proxy`",
    )


def _on_http_error(request: Request, error: HTTPException) -> Response:
    """Starlette's own refusals (unknown path, wrong method) in our form."""
    text = f"{request.method} {request.url.path[:200]}: {error.detail}"
    kinds: dict[int, type[GpuReleaseError]] = {404: NoSuchRunError, 405: ConflictError}
    response = error_response(kinds.get(error.status_code, RequestError)(text, hint="see /openapi.json"))
    response.status_code = error.status_code
    return response


async def _on_refusal(connection: Request | WebSocket, error: GpuReleaseError) -> Response | None:
    if isinstance(connection, WebSocket):
        await connection.send_denial_response(error_response(error))
        return None
    return error_response(error)


def _on_gone(request: Request, error: ClientDisconnect) -> Response:
    """The client went while it sent its request: nobody reads this."""
    return Response(status_code=400)


def _on_fault(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(GpuReleaseError(f"the gateway failed: {type(error).__name__}", hint="see the gateway's log"))


class _Server(uvicorn.Server):
    """Server of uvicorn without its signal handlers, for the process belongs to Ray; with our way to accept TLS."""

    def __init__(self, config: uvicorn.Config, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(config)
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn."""
        await super().startup(sockets if self._tls is None else [])
        if self._tls is None:
            return
        connection: Any = self.config.http_protocol_class
        make = partial(connection, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        listening: list[Any] = self.servers
        listening += [TlsListener(listener, self._tls, make) for listener in sockets or []]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def open_port(host: str, port: int, patience_s: float) -> socket.socket:
    """Listen on ``port`` (0: any); a port that the gateway's last life still holds is waited for."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _notice_dead_peers(listener)
        # connections inherit it, too: else an answer's body waits 40 ms for the other side to acknowledge its head
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            listener.bind((host, port))
            listener.listen(512)
            listener.setblocking(False)
        except OSError:
            listener.close()
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            return listener


def _notice_dead_peers(listener: socket.socket) -> None:
    """Connections inherit it: one whose other side lost its power or network ends after a minute."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        listener.setsockopt(socket.IPPROTO_TCP, option, value)


def settings_for(app: ASGIApp, waiting: WaitingConnections | None = None) -> uvicorn.Config:
    """The settings with which ``app`` is served."""
    connection: Any = partial(HttpConnection, WaitingConnections() if waiting is None else waiting)
    return uvicorn.Config(
        app,
        http=connection,
        ws=WebSocketConnection,
        lifespan="off",
        log_config=None,
        access_log=False,
        ws_max_size=_FRAME_LIMIT_BYTES,
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=KEEP_ALIVE_S,
        server_header=False,
    )


def serve(app: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None = None) -> asyncio.Task[None]:
    """Serve for ever on a listening socket, with ``tls`` no plain text."""
    return asyncio.get_running_loop().create_task(_Server(settings_for(app), tls).serve(sockets=[listener]))
