"""Sockets live as long as the token that opened them, whatever they carry."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable

from starlette.websockets import WebSocket, WebSocketDisconnect

from .access import Caller
from .broker import Broker

log = logging.getLogger(__name__)
#: WebSocket close code "policy violation"
_POLICY = 1008
_CLOSING_S = 1.0


async def while_valid(broker: Broker, caller: Caller, socket: WebSocket, work: Awaitable[None]) -> None:
    """Serve a socket by ``work`` until that ends; a token that is revoked or expires ends it at once.

    The reason is in the closing frame; a client that comes back is refused with it (401). A kernel's session is then
    treated as closed: its runs end after the reconnect grace, detached ones go on.
    """
    serving = asyncio.ensure_future(work)
    ending = asyncio.ensure_future(broker.tokens.until_over(caller))
    try:
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            reason = ending.result().message
            log.info("a socket of %s is closed: %s", caller.user, reason)
            broker.audit.note(caller, "socket.close", detail=reason)
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
