"""The guard before every route: known Host, no foreign Origin, a bearer token, a bounded body."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import urlsplit

import psutil
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from ...errors import ForbiddenError, GpuReleaseError, RequestError, TooManyAttemptsError, TooManyRequestsError
from ...protocol.config import GatewayConfig
from ...settings.built_in import BUILT_IN
from ..auth.permissions import Caller
from ..auth.rate_limit import TokenRateLimit, UserRateLimit
from ..auth.tokens import UnknownTokenError
from ..service import GatewayService

#: a body of which nothing more comes for so long is not waited for
_BODY_SILENCE_S = 30.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: of one user at the same time: kernels' sessions and followed runs
_MOST_SOCKETS: int = BUILT_IN["user_sockets"].default
_EVERYWHERE = ("0.0.0.0", "::")
CALLER = "jupyter_gpu_release.caller"
#: in a WebSocket's scope: a function from the time at which a message came to the seconds until its turn
TURNS = "jupyter_gpu_release.turns"


def error_response(error: GpuReleaseError) -> Response:
    """The one table from errors to HTTP: ``{"error": {"code", "message", "mend"}}``."""
    body = {"error": {"code": error.code, "message": error.message, "mend": error.hint}}
    headers = {"WWW-Authenticate": "Bearer"} if error.http_status == 401 else {}
    if isinstance(error, TooManyAttemptsError | TooManyRequestsError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))  # whole seconds: RFC 9110
    return Response(json.dumps(body), error.http_status, headers, "application/json")


def allowed_hosts(config: GatewayConfig) -> frozenset[str]:
    """Host names under which the gateway may be addressed (against DNS rebinding)."""
    addresses = [urlsplit(url).hostname or "" for url in (config.public_url, config.proxy_url)]
    named = [config.host, *addresses, *config.allowed_hosts, *_LOOPBACK]
    if config.host in _EVERYWHERE:
        named += _own_names()
    return frozenset(name.lower() for name in named if name)


def _own_names() -> list[str]:
    """This machine's name and addresses: an attacker's page comes under a name of its own."""
    addresses = itertools.chain.from_iterable(psutil.net_if_addrs().values())
    return [socket.gethostname(), *(address.address.partition("%")[0] for address in addresses)]


class RequestGuard:
    """ASGI middleware; the authenticated caller is in ``scope[CALLER]`` afterwards."""

    def __init__(
        self,
        app: ASGIApp,
        service: GatewayService,
        body_limit_bytes: int,
        name_of: Callable[[Scope], str] = lambda scope: "",
    ) -> None:
        self._app = app
        self._service = service
        self._hosts = allowed_hosts(service.config)
        self._body_limit_bytes = body_limit_bytes
        self._name_of = name_of
        self._attempts = TokenRateLimit(service.config.free_attempts)
        self._requests = UserRateLimit(service.config.user_requests_per_s)
        self._messages = UserRateLimit(service.config.user_requests_per_s)
        self._sockets: Counter[str] = Counter()
        self._prefix = urlsplit(service.config.proxy_url).path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with the caller known and the body counted."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if self._prefix:
            scope["path"] = without_prefix(scope["path"], self._prefix)
        try:
            scope[CALLER] = caller = self._admit(headers, address_of(scope))
            self._check_rate(caller, scope["type"] == "websocket")
        except GpuReleaseError as error:
            nobody = Caller("", "", origin=address_of(scope))
            self._service.audit.write_entry(nobody, self._name_of(scope), result=error.code, detail=error.message)
            await refuse(error, scope, receive, send)
            return
        try:
            if scope["type"] == "http":
                receive = self._counted(receive, headers.get("content-length"))
                await self._app(scope, receive, send)
            else:
                await self._serve_socket(caller, scope, receive, send)
        except GpuReleaseError as error:
            await refuse(error, scope, receive, send)
        except (WebSocketDisconnect, ClientDisconnected):
            return  # it went while it was being answered

    def _admit(self, headers: Headers, address: str) -> Caller:
        """Find who sends this; raises for a foreign page, no good token, or too many unknown ones from this address."""
        check_host(headers.get("host"), self._hosts)
        check_origin(headers.get("origin"), headers.get("host"))
        now_s = time.monotonic()
        try:
            return self._service.tokens.caller(headers.get("authorization"), origin=address)
        except UnknownTokenError:
            if (wait_s := self._attempts.wait_s(address, now_s)) > 0:
                raise TooManyAttemptsError(
                    "too many unknown tokens came from this address",
                    hint="check the token, then try again in a minute",
                    retry_after_s=wait_s,
                ) from None
            self._attempts.wrong(address, now_s)
            raise

    def _check_rate(self, caller: Caller, is_socket: bool) -> None:
        wait_s = self._requests.take(caller.user, time.monotonic())
        if wait_s > 0:
            raise TooManyRequestsError(
                f"{caller.user} asks more than {self._requests.per_s:g} times a second",
                hint="ask less often",
                retry_after_s=wait_s,
            )
        if is_socket and self._sockets[caller.user] >= _MOST_SOCKETS:
            raise TooManyRequestsError(
                f"{caller.user} has {_MOST_SOCKETS} connections open", hint="shut down kernels that are not needed"
            )

    async def _serve_socket(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        scope[TURNS] = partial(self._messages.reserve, caller.user)
        self._sockets[caller.user] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._sockets[caller.user] -= 1
            self._sockets += Counter()  # drops what is 0

    def _counted(self, receive: Receive, announced: str | None) -> Receive:
        limit = self._body_limit_bytes
        too_large = RequestError(f"the body is larger than {limit} bytes", hint="send large inputs through the store")
        if announced is not None and announced.isdecimal() and int(announced) > limit:
            raise too_large
        received, whole = 0, False

        async def counted() -> Message:
            nonlocal received, whole
            try:  # what comes after the body is the connection's end, which may take any time
                message = await (receive() if whole else asyncio.wait_for(receive(), _BODY_SILENCE_S))
            except TimeoutError as error:
                raise RequestError(f"the rest of the body did not come for {_BODY_SILENCE_S:.0f} s") from error
            whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > limit:
                raise too_large
            return message

        return counted


def without_prefix(path: str, prefix: str) -> str:
    """``path`` without the path of the proxy's address, which proxies take off or leave."""
    return path[len(prefix) :] or "/" if path == prefix or path.startswith(f"{prefix}/") else path


def address_of(scope: Scope) -> str:
    """The peer's address: of the client, or of the proxy before it."""
    client = scope.get("client")
    return str(client[0]) if client else ""


async def refuse(error: GpuReleaseError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with ``error``; a WebSocket's upgrade is denied with the same status and body."""
    response = error_response(error)
    if scope["type"] == "websocket":
        with contextlib.suppress(WebSocketDisconnect, ClientDisconnected):
            await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)


def check_host(host: str | None, allowed: Iterable[str]) -> None:
    """Raise :class:`ForbiddenError` unless the Host header names the gateway (whatever the port)."""
    name = _host_in(f"//{host}") if host else ""
    if name not in allowed:
        raise ForbiddenError(f"unknown Host {name[:100]!r}", hint="its operator names it in JUPYTER_GPU_ALLOWED_HOSTS")


def _host_in(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:  # such as an unfinished IPv6 address
        return ""


def check_origin(origin: str | None, host: str | None) -> None:
    """Raise :class:`ForbiddenError` for a browser's request from another site (no Origin: not a browser)."""
    if origin is None:
        return
    scheme, _, place = origin.partition("://")
    if scheme not in ("http", "https") or place.lower() != (host or "").lower():
        raise ForbiddenError(f"foreign Origin {origin[:100]!r}", hint="the gateway answers no other site's pages")
