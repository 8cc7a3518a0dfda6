"""The Hub's service for tokens: a server shows its own token of the Hub, and gets one of its user for the gateway.

Whoever may use a user's server may run code as that user, and so may have this token: that is what is asked of the
token that is shown. The service itself needs no right at the Hub. It keeps no token.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..client.discovery import Target, find_gateway
from ..client.rest import AsyncGatewayClient, GatewayRequests
from ..errors import AuthenticationError, ForbiddenError, GatewayUnavailableError, GpuReleaseError, TooManyRequestsError
from ..protocol.admin import TokenRequest
from .config import LIFETIME_VARIABLE, SERVICE

_log = logging.getLogger(__name__)
_TIMEOUT_S = 20.0
#: a user with many servers has each of them renewed in time, and no more
_MOST_TOKENS, _WITHIN_S = 60, 600.0
_SERVER = re.compile(r"access:servers!server=[^/]+/(.*)")
_LONGEST_LABEL = 80


class _Holder(msgspec.Struct, frozen=True):
    """The holder of a token, as the Hub knows it (``GET /hub/api/user``)."""

    name: str
    kind: str = "user"
    scopes: list[str] = msgspec.field(default_factory=list)

    def label(self) -> str:
        """The server for which the token is, in the words of the gateway's list; raises :class:`ForbiddenError`."""
        own = {"access:servers", f"access:servers!user={self.name}"}
        found = [scope for scope in self.scopes if scope.startswith(f"access:servers!server={self.name}/")]
        if self.kind != "user" or not (found or own & set(self.scopes)):
            raise ForbiddenError(
                "this token of the Hub may use no server of its user", hint="the token of a user's server is wanted"
            )
        named = _SERVER.fullmatch(found[0]) if found else None
        return f"JupyterHub {named[1] if named is not None else ''}".strip()[:_LONGEST_LABEL]


@dataclass(frozen=True)
class Settings:
    """Addresses of Hub and gateway, and how long a token is good."""

    hub_api: str
    gateway: Target
    lifetime_s: float

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """From the variables that Hub and configuration set; the admin's token is read anew for each request."""
        found = find_gateway(environment=environment)
        if found is None:
            raise GatewayUnavailableError("the service has no gateway", hint="start it from jupyterhub_config.py")
        return cls(environment["JUPYTERHUB_API_URL"].rstrip("/"), found, float(environment[LIFETIME_VARIABLE]))


class TokenService:
    """Answers the servers of one Hub."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._issued: defaultdict[str, deque[float]] = defaultdict(deque)

    async def create_token(self, request: Request) -> Response:
        """``POST …/token``: ``{"token", "expires_s"}``; raises nothing: a refusal is the answer."""
        try:
            return await self._create(request.headers.get("authorization", ""))
        except GpuReleaseError as error:
            _log.warning("no token: %s", error.message)
            said = {"code": error.code, "message": error.message, "mend": error.hint}
            return JSONResponse({"error": said}, error.http_status)

    async def _create(self, authorization: str) -> Response:
        settings = Settings.read(self._environment)
        holder = await _holder_of(settings.hub_api, authorization)
        asked = TokenRequest(holder.name, "user", settings.lifetime_s, holder.label())
        self._count(holder.name)
        gateway = AsyncGatewayClient(settings.gateway, timeout_s=_TIMEOUT_S)
        try:
            issued = await gateway.ask(GatewayRequests.create_token, asked)
        finally:
            await gateway.close()
        _log.info("token %s of %s, for %s", issued.token.id, holder.name, asked.label)
        answer = {"token": issued.secret, "expires_s": settings.lifetime_s}
        return JSONResponse(answer, 201, {"Cache-Control": "no-store"})

    def _count(self, user: str) -> None:
        times, now_s = self._issued[user], time.monotonic()
        while times and times[0] < now_s - _WITHIN_S:
            times.popleft()
        if len(times) >= _MOST_TOKENS:
            raise TooManyRequestsError(f"{user} had {_MOST_TOKENS} tokens within 10 minutes", hint="try again later")
        times.append(now_s)


async def _holder_of(hub_api: str, authorization: str) -> _Holder:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() not in ("token", "bearer") or not token.strip():
        raise AuthenticationError(
            "the request carries no token of the Hub", hint="Authorization: token $JUPYTERHUB_API_TOKEN"
        )
    loopback = urlsplit(hub_api).hostname in ("127.0.0.1", "localhost", "::1")
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=not loopback) as client:
        try:
            answer = await client.get(f"{hub_api}/user", headers={"Authorization": f"token {token.strip()}"})
        except httpx.HTTPError as error:
            raise GatewayUnavailableError(f"the Hub does not answer: {error}", hint="is it running?") from error
    if answer.status_code in (401, 403):
        raise AuthenticationError("the Hub does not know this token", hint="restart the server from the Hub's page")
    try:
        return msgspec.json.decode(answer.raise_for_status().content, type=_Holder)
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        raise GatewayUnavailableError(f"the Hub answered with something else: {error}") from error


def app(environment: Mapping[str, str]) -> Starlette:
    """The service's one route, and one that says that it runs."""
    prefix = environment.get("JUPYTERHUB_SERVICE_PREFIX", f"/services/{SERVICE}/")
    service = TokenService(environment)
    return Starlette(
        routes=[
            Route(f"{prefix}token", service.create_token, methods=["POST"]),
            Route(prefix, lambda request: JSONResponse({"service": SERVICE})),
        ]
    )


def main() -> None:
    """Serve until the Hub ends this process."""
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    Settings.read(os.environ)  # what is missing is said at the start, in the Hub's log
    at = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    uvicorn.run(app(os.environ), host=at.hostname or "127.0.0.1", port=at.port or 80, log_level="warning")


if __name__ == "__main__":
    main()
