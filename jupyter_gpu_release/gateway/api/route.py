"""One route as a record, and its query parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.websockets import WebSocket

from ...errors import RequestError
from ...protocol.bounds import LARGEST_NUMBER
from ..auth.permissions import Caller
from ..service import GatewayService

_Body = TypeVar("_Body", bound=msgspec.Struct)
#: also text that is no UTF-8 and a nesting without end
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def flag(request: Request, name: str) -> bool:
    """Tell if a parameter is there and says ``1`` or ``true``."""
    return request.query_params.get(name, "") in ("1", "true")


def number(request: Request | WebSocket, name: str, default: int) -> int:
    """A whole number from 0 on; raises :class:`RequestError` for anything else."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > len(str(LARGEST_NUMBER)) or int(text) > LARGEST_NUMBER:
        raise RequestError(f"{name}={text[:40]!r} is not a number from 0 to {LARGEST_NUMBER}")
    return int(text)


async def body_of(request: Request, kind: type[_Body]) -> _Body:
    """The request's JSON as a record; raises :class:`RequestError` for what is none."""
    body = await request.body()
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise RequestError(f"the body is no {kind.__name__}: {error}", hint="see /openapi.json") from error


Handler = Callable[[GatewayService, Caller, Request], Awaitable[Any]]
SocketHandler = Callable[[GatewayService, Caller, WebSocket], Awaitable[None]]


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
