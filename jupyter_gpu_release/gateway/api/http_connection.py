"""Connections of the gateway's HTTP server: one that says nothing, or nothing whole, or shows no token is not kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.protocol import OPEN

from .guard import CALLER

log = logging.getLogger(__name__)
#: from the connection, or from an answer to somebody unknown, to a request's last header
REQUEST_S = 10.0
#: connections that may be without a request at the same time; one more ends the oldest of them
MOST_WAITING = 256
#: in a WebSocket's scope: a function that gets a short message before the application does, and may answer it; called
#: by the event loop, only while nothing else that came is unread or at work. It must not raise
AT_ONCE = "jupyter_gpu_release.at_once"
#: bytes of a message that may be answered so
_SHORT = 64
#: for the good-bye of TLS
_TLS_END_S = 2.0
#: after an accept that failed (no file descriptor is left)
_ACCEPT_PAUSE_S = 0.5


class WaitingConnections:
    """Connections that have not said yet whose they are, oldest first."""

    def __init__(self, request_s: float = REQUEST_S, most: int = MOST_WAITING) -> None:
        self.request_s = request_s
        self._most = most
        self._timers: dict[HttpConnection, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def add(self, connection: HttpConnection) -> None:
        """Wait for a request, from now on unless that is so already."""
        if connection not in self._timers:
            self._timers[connection] = connection.loop.call_later(self.request_s, connection.give_up)
            if len(self._timers) > self._most:
                next(iter(self._timers)).give_up()

    def remove(self, connection: HttpConnection) -> None:
        """Remove a connection that has said what it wants, or is gone."""
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()


class TlsListener:
    """Accepts TLS connections. A handshake has as long as a request, and of too many the oldest ends.

    The event loop's own server keeps any number of connections that never begin their handshake.
    """

    def __init__(self, listener: socket.socket, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._context = context
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._accepting = self._loop.create_task(self._accept_forever())

    def close(self) -> None:
        """Accept no more."""
        self._accepting.cancel()
        for task in list(self._handshakes):
            self._end_handshake(task)

    async def wait_closed(self) -> None:
        """Return when nothing is accepted any more."""
        await asyncio.gather(self._accepting, return_exceptions=True)

    async def _accept_forever(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:
                log.error("a connection cannot be accepted: %s", error.strerror)
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            self._begin_handshake(connection)
            await asyncio.sleep(0)  # an accept that need not wait lets nobody else have a turn

    def _begin_handshake(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._shake_hands(connection))
        self._handshakes[task] = connection
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))
        if len(self._handshakes) > MOST_WAITING:
            self._end_handshake(next(iter(self._handshakes)))

    def _end_handshake(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._handshakes.pop(task).close()  # also of one that had not begun

    async def _shake_hands(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # of which ssl.SSLError is one: it spoke no TLS, or trusts us not
            await self._loop.connect_accepted_socket(
                self._make,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=REQUEST_S,
                ssl_shutdown_timeout=_TLS_END_S,
            )


class HttpConnection(H11Protocol):
    """Connection of uvicorn, which by itself waits without limit for a first request and for the rest of one."""

    def __init__(self, waiting: WaitingConnections, **settings: Any) -> None:
        super().__init__(**settings)
        self._waiting = waiting
        self._is_websocket = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self._waiting.add(self)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        super().data_received(data)
        if self._is_websocket:
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._waiting.remove(self)
        elif not self.transport.is_closing():
            self._waiting.add(self)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Called when this connection becomes a WebSocket's."""
        self._waiting.remove(self)
        self._is_websocket = True
        # heartbeats tell of it, and a session whose other side is silent is not one whose kernel has ended
        is_session = event.target.partition(b"?")[0].endswith(b"/session")
        if is_session and (own := self.transport.get_extra_info("socket")) is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Called when an answer was sent."""
        unknown = CALLER not in self.cycle.scope
        super().on_response_complete()
        if unknown and self.cycle.response_complete and not self.transport.is_closing():
            self._waiting.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._waiting.remove(self)
        super().connection_lost(exc)

    def give_up(self) -> None:
        """End the connection, whatever was on its way."""
        self._waiting.remove(self)
        self._unset_keepalive_if_required()
        self.transport.abort()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Connection of uvicorn; what ``scope[AT_ONCE]`` answers takes one turn of the event loop, all else four.

    Heartbeats are nearly all that a gateway of idle kernels does. What breaks the protocol ends the connection, at once
    and without a word in the log, and a message takes no more memory than its bytes.
    """

    _is_awaited = False
    #: what has come of a message in parts
    _message: bytearray

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            self._end()  # uvicorn would keep an upgrade that cannot be read, and not answer it

    def handle_parser_exception(self) -> None:
        """Called when something came that is no frame; uvicorn fails when that is before its answer to the upgrade."""
        if self.conn.close_sent is None:
            self.transport.abort()
        else:
            super().handle_parser_exception()

    def handle_ping(self) -> None:
        """Called for a ping; who does not read the answers gets no more of them, for they would pile up here."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_cont(self, event: Frame) -> None:
        """Called for a further frame of a message; kept in one piece, as an object for each byte takes 60 times it."""
        if self.frames:
            self._message = bytearray(self.frames.pop())
        self._message += event.data
        if event.fin:
            self.frames = [bytes(self._message)]
            del self._message
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """Called for a whole message; uvicorn logs a traceback for text that is none, and fails when it is closing."""
        try:
            if self.curr_msg_data_type == "text":
                self.frames[0].decode()
        except UnicodeDecodeError:
            self.conn.fail(1007)
            self._end()
        else:
            super().send_receive_event_to_app()

    def _end(self) -> None:
        """End the connection with what there is still to say."""
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()

    def handle_bytes(self, event: Frame) -> None:
        """Called for the first frame of a binary message."""
        answer = self._answer_at_once(event) if event.fin and len(event.data) <= _SHORT else None
        if answer is None:
            super().handle_bytes(event)
            return
        self.conn.send_binary(answer)
        self.transport.write(b"".join(self.conn.data_to_send()))

    def _answer_at_once(self, event: Frame) -> bytes | None:
        is_idle = self._is_awaited and self.queue.empty()
        if not (is_idle and self.writable.is_set() and self.conn.state is OPEN and AT_ONCE in self.scope):
            return None
        answer: Callable[[bytes], bytes | None] = self.scope[AT_ONCE]  # type: ignore[literal-required]
        return answer(bytes(event.data))

    async def receive(self) -> Any:
        """Called by the application, for the next message."""
        self._is_awaited = True
        try:
            return await super().receive()
        finally:
            self._is_awaited = False
