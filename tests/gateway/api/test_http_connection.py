"""Who says nothing, or nothing whole, or shows no token does not keep a connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from starlette.responses import Response
from websockets.asyncio.client import connect
from websockets.frames import Close, Frame, Opcode

from jupyter_gpu_release.gateway.api.app import _Server, open_port, settings_for
from jupyter_gpu_release.gateway.api.guard import CALLER
from jupyter_gpu_release.gateway.api.http_connection import AT_ONCE, WaitingConnections, WebSocketConnection

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
KNOWN = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: yes\r\n\r\n"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    if any(name == b"authorization" for name, _ in scope["headers"]):
        scope[CALLER] = "somebody"
    await Response(b"answer")(scope, receive, send)


@contextlib.asynccontextmanager
async def serving(waiting: WaitingConnections) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    listener = await open_port("127.0.0.1", 0, 0.0)
    port = listener.getsockname()[1]
    server = _Server(settings_for(_app, waiting))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    writers = []

    async def connect() -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    yield connect
    for writer in writers:
        writer.close()
    server.should_exit = True
    await task


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Read to the end; an aborted connection may come as a reset."""
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 60)
    return True


@pytest.mark.parametrize("said", [b"", b"GET / HTT", REQUEST[:-2], REQUEST], ids=["none", "word", "half", "no token"])
def test_who_shows_no_token_is_let_go_of_in_time(said: bytes) -> None:
    async def go() -> None:
        async with serving(WaitingConnections(request_s=0.2)) as connect:
            reader, writer = await connect()
            writer.write(said)
            assert await is_ended(reader)

    asyncio.run(go())


def test_drops_that_fall_slowly_buy_no_time() -> None:
    async def go() -> None:
        async with serving(WaitingConnections(request_s=0.2)) as connect:
            reader, writer = await connect()
            ended = asyncio.create_task(is_ended(reader))
            while not ended.done():
                with contextlib.suppress(OSError):
                    writer.write(b"G")
                    await writer.drain()
                await asyncio.sleep(0.01)

    asyncio.run(go())


def test_a_client_that_is_known_keeps_its_connection() -> None:
    async def go() -> None:
        waiting = WaitingConnections(request_s=0.2)
        async with serving(waiting) as connect:
            reader, writer = await connect()
            idle, _ = await connect()
            writer.write(KNOWN)
            assert await reader.readuntil(b"answer")
            assert await is_ended(idle), "its time is over: the other's would be, too"
            writer.write(KNOWN)
            assert await reader.readuntil(b"answer")
            assert len(waiting) == 0

    asyncio.run(go())


def test_of_too_many_that_say_nothing_the_oldest_go() -> None:
    async def go() -> None:
        waiting = WaitingConnections(request_s=600, most=5)
        async with serving(waiting) as connect:
            reader, writer = await connect()
            writer.write(KNOWN)
            assert await reader.readuntil(b"answer")
            silent = [await connect() for _ in range(8)]
            for flooded, _ in silent[:3]:
                assert await is_ended(flooded)
            assert len(waiting) == 5
            writer.write(KNOWN)
            assert await reader.readuntil(b"answer")

    asyncio.run(go())


def test_a_peer_that_lost_its_power_is_noticed() -> None:
    async def go() -> list[int]:
        listener = await open_port("127.0.0.1", 0, 0.0)
        with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            alive = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            return [alive, *(accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options)]

    assert asyncio.run(go()) == [1, 30, 10, 3]


def _keepalives(server: _Server) -> list[int]:
    own = [connection.transport.get_extra_info("socket") for connection in server.server_state.connections]
    return [each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for each in own]


def test_a_session_is_not_waited_for_as_a_request_is() -> None:
    """It lasts for hours, and its silence is judged by its heartbeats, not by the system's."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})

    async def go() -> None:
        waiting = WaitingConnections(request_s=0.1)
        listener = await open_port("127.0.0.1", 0, 0.0)
        server = _Server(settings_for(app, waiting))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/v1"
        async with connect(f"{url}/runs/x/events"):
            assert _keepalives(server) == [1], "who only looks on sends no heartbeats"
        async with connect(f"{url}/session") as session:
            assert len(waiting) == 0
            assert 0 in _keepalives(server)
            await asyncio.sleep(0.3)
            await session.send("still here")
            assert await session.recv() == "still here"
        server.should_exit = True
        await task

    asyncio.run(go())


def test_an_answers_body_does_not_wait_until_its_head_is_acknowledged() -> None:
    async def go() -> int:
        listener = await open_port("127.0.0.1", 0, 0.0)
        with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            return accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    assert asyncio.run(go())


class _Echo:
    """An application that has ``beat`` answered at once, and lists what it gets itself; ``busy`` keeps it at work."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.beats = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        scope[AT_ONCE] = self._beat
        while (message := await receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            self.got.append(data)
            connection: WebSocketConnection = receive.__self__
            while data == b"busy" and connection.queue.empty():
                await asyncio.sleep(0.001)
            await send({"type": "websocket.send", "bytes": b"slow " + (data or b"")})

    def _beat(self, data: bytes) -> bytes | None:
        if data != b"beat":
            return None
        self.beats += 1
        return b"fast beat"


@contextlib.asynccontextmanager
async def _echoing(app: _Echo) -> AsyncIterator[Any]:
    listener = await open_port("127.0.0.1", 0, 0.0)
    server = _Server(settings_for(app))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    async with connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/session") as session:
        yield session
    server.should_exit = True
    await task


def _frames(*messages: tuple[Opcode, bytes]) -> bytes:
    return b"".join(Frame(opcode, data).serialize(mask=True) for opcode, data in messages)


def test_a_heartbeat_is_answered_where_it_is_read() -> None:
    async def go() -> None:
        app = _Echo()
        async with _echoing(app) as session:
            for said, answer in [
                (b"a", b"slow a"),
                (b"beat", b"fast beat"),
                (b"b", b"slow b"),
                (b"beat", b"fast beat"),
            ]:
                await session.send(said)
                assert await session.recv() == answer
            assert app.got == [b"a", b"b"]

    asyncio.run(go())


@pytest.mark.parametrize("before", [b"a", b"busy"], ids=["unread", "at work"])
def test_a_heartbeat_overtakes_nothing_that_was_sent_before(before: bytes) -> None:
    async def go() -> None:
        app = _Echo()
        async with _echoing(app) as session:
            if before == b"busy":
                await session.send(before)
                await session.send(b"beat")
            else:
                session.transport.write(_frames((Opcode.BINARY, before), (Opcode.BINARY, b"beat")))
            assert [await session.recv(), await session.recv()] == [b"slow " + before, b"slow beat"]
            assert app.got == [before, b"beat"]
            assert app.beats == 0

    asyncio.run(go())


def test_a_heartbeat_before_the_closing_frame_ends_nothing_unfinished() -> None:
    """Both come in one piece: the connection is closing by the time the heartbeat is looked at."""

    async def go() -> None:
        app = _Echo()
        async with _echoing(app) as session:
            session.transport.write(_frames((Opcode.BINARY, b"beat"), (Opcode.CLOSE, Close(1000, "").serialize())))
            await asyncio.wait_for(session.wait_closed(), 60)
            assert session.close_code == 1000
        assert app.beats == 0

    asyncio.run(go())
