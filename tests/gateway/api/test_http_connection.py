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

UPGRADE = (
    b"GET /v1/session HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


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
        #: the gateway's end of the client's connection
        self.connection: Any = None

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
        [app.connection] = server.server_state.connections
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


async def _until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_message_in_many_small_parts_takes_no_more_than_its_bytes() -> None:
    async def go() -> None:
        app = _Echo()
        async with _echoing(app) as session:
            parts = [Frame(Opcode.CONT, b"x", fin=False)] * 2000
            for frame in (Frame(Opcode.BINARY, b"a", fin=False), *parts):
                session.transport.write(frame.serialize(mask=True))
            await asyncio.wait_for(_until(lambda: len(getattr(app.connection, "_message", b"")) == 2001), 60)
            assert app.connection.frames == []
            session.transport.write(_frames((Opcode.CONT, b"z")))
            assert await session.recv() == b"slow a" + b"x" * 2000 + b"z"
            assert not hasattr(app.connection, "_message")

    asyncio.run(go())


def test_answers_to_pings_do_not_pile_up_for_who_does_not_read_them() -> None:
    async def go() -> None:
        app = _Echo()
        async with _echoing(app) as session:
            transport = app.connection.transport
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            session.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            session.transport.pause_reading()
            for _ in range(40):
                session.transport.write(_frames((Opcode.PING, bytes(125))) * 1000)
                await asyncio.wait_for(_until(lambda: session.transport.get_write_buffer_size() == 0), 60)
            session.transport.write(_frames((Opcode.BINARY, b"a")))
            await asyncio.wait_for(_until(lambda: app.got), 60)
            waiting_bytes = transport.get_write_buffer_size()
            session.transport.resume_reading()
            assert await session.recv() == b"slow a"
        assert waiting_bytes < 1 << 20, "of 5 MiB"

    asyncio.run(go())


@pytest.mark.parametrize(
    "sent",
    [b"\x83\x80\0\0\0\0", b"\x81\x81\0\0\0\0\xff" * 2 + b"\x88\x80\0\0\0\0"],
    ids=["an unknown opcode", "no text, twice, and a close"],
)
@pytest.mark.parametrize("early", [True, False], ids=["before the upgrade is answered", "after"])
def test_what_is_no_message_ends_the_connection_and_is_not_logged(
    sent: bytes, early: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        if early:
            await asyncio.wait_for(begun.wait(), 60)
        with contextlib.suppress(OSError):
            await send({"type": "websocket.accept"})
        assert (await asyncio.wait_for(receive(), 60))["type"] == "websocket.disconnect"

    async def go() -> None:
        nonlocal begun
        begun = asyncio.Event()
        listener = await open_port("127.0.0.1", 0, 0.0)
        server = _Server(settings_for(app))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(UPGRADE)
        if early:
            await asyncio.wait_for(_until(lambda: server.server_state.tasks), 60)
            [connection] = server.server_state.connections
            writer.write(sent)
            await asyncio.wait_for(_until(lambda: connection.conn.eof_sent), 60)
            begun.set()
        else:
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
        assert await is_ended(reader)
        await asyncio.wait_for(_until(lambda: not server.server_state.tasks), 60)
        writer.close()
        server.should_exit = True
        await task

    begun: asyncio.Event
    asyncio.run(go())
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("head", [b"X: " + b"x" * 9000 + b"\r\n", b"X: \r\n" * 130], ids=["a long line", "many"])
def test_an_upgrade_whose_head_is_too_large_is_answered(head: bytes) -> None:
    """Nobody waits for its client any more, for it has sent a whole request."""

    async def go() -> bytes:
        async with serving(WaitingConnections(request_s=600)) as connect:
            reader, writer = await connect()
            writer.write(UPGRADE[:-2] + head + b"\r\n")
            return await asyncio.wait_for(reader.read(), 60)

    assert asyncio.run(go()).startswith(b"HTTP/1.1 431 ")
