"""What callers may put into a query string."""

from __future__ import annotations

from starlette.requests import Request
from starlette.websockets import WebSocket

from ..errors import RequestError


def flag(request: Request, name: str) -> bool:
    """Whether a parameter is there and says ``1`` or ``true``."""
    return request.query_params.get(name, "") in ("1", "true")


def number(request: Request | WebSocket, name: str, default: int) -> int:
    """A whole number from 0 on; raises :class:`RequestError` for anything else."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal():
        raise RequestError(f"{name}={text[:40]!r} is not a number from 0 on")
    return int(text)
