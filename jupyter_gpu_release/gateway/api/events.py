"""The output of a run for programs: recorded events page by page, or as a socket that follows the run."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from ...protocol.events import Event
from ...protocol.rest import EventsPage
from ...protocol.session import Update
from ...protocol.wire import decode
from ..auth.permissions import Caller
from ..runs.events import RawEvents
from ..service import GatewayService
from .route import number
from .run_follower import Subscription

_EVENTS_PER_PAGE = 1000


async def run_events(service: GatewayService, caller: Caller, request: Request) -> EventsPage:
    """GET /v1/runs/{run}/events."""
    record = service.run_for(caller, request.path_params["run"])
    after = number(request, "after", 0)
    events: list[Event] = []
    async for batch in service.batches_after(caller, record, after):
        events += [decode(bytes(raw), Event) for raw in batch.events]
        if len(events) >= _EVENTS_PER_PAGE:
            break
    page = events[:_EVENTS_PER_PAGE]
    last = page[-1].n if page else after
    more = len(events) > len(page) or last < record.tail.last
    return EventsPage(record.run, record.view.state, last, more, page)


async def events_socket(service: GatewayService, caller: Caller, socket: WebSocket) -> None:
    """WS /v1/runs/{run}/events: JSON messages ``events`` and ``update`` until the run is over."""
    record = service.run_for(caller, socket.path_params["run"])
    follower = Subscription(service, caller, record, number(socket, "after", 0))
    wake = asyncio.Event()
    record.watchers.add(wake.set)
    await socket.accept()
    gone = asyncio.ensure_future(_until_gone(socket))
    try:
        while not gone.done():
            wake.clear()
            await follower.catch_up(partial(_send_json, socket))
            if record.state.is_terminal and follower.seq == record.view.seq:
                await socket.close()
                return
            waiting = asyncio.ensure_future(wake.wait())
            await asyncio.wait([waiting, gone], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
    except (WebSocketDisconnect, RuntimeError):  # the client went away while we sent
        return
    finally:
        gone.cancel()
        record.watchers.discard(wake.set)


async def _until_gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _send_json(socket: WebSocket, message: bytes) -> None:
    """Messages are kept as msgpack for kernels; this socket speaks JSON."""
    parsed = decode(message, _EventsOrUpdate)
    await socket.send_text(msgspec.json.encode(parsed).decode())


class _JsonEvents(msgspec.Struct, frozen=True, tag="events"):
    run: str
    events: list[Event]


_EventsOrUpdate = _JsonEvents | Update
assert RawEvents.__struct_config__.tag == _JsonEvents.__struct_config__.tag
