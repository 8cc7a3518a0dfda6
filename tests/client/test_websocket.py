"""What a failed connection is called."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ports import free_port
from websockets.asyncio.client import ClientConnection

from jupyter_gpu_release.client import websocket
from jupyter_gpu_release.client.discovery import Target, is_refused, unreachable
from jupyter_gpu_release.client.discovery import not_a_gateway as not_a_gateway_error
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.client.websocket import LoopThread, SendQueue, follow_run, open_link, session_url
from jupyter_gpu_release.errors import GatewayUnavailableError, WrongAddressError
from jupyter_gpu_release.protocol.session import Heartbeat
from jupyter_gpu_release.protocol.wire import encode


def test_session_urls() -> None:
    assert session_url("http://a:1") == "ws://a:1/v1/session"
    assert session_url("https://a/prefix") == "wss://a/prefix/v1/session"


@pytest.fixture
def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def not_a_gateway(request: pytest.FixtureRequest) -> Iterator[str]:
    """Answers every connection with HTML; the parameter: status and reason."""
    status = getattr(request, "param", "200 OK").encode()
    server = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def answer() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>")

    thread = threading.Thread(target=answer)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    over.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def _open_and_close(target: Target) -> None:
    async def work() -> None:
        async with open_link(target, 60):
            pass

    asyncio.run(work())


def test_nobody_listens(nobody: str) -> None:
    with pytest.raises(GatewayUnavailableError, match="does not answer: Connection refused") as refused:
        _open_and_close(Target(nobody, "t"))
    assert refused.value.hint
    with GatewayClient(nobody, "t") as client, pytest.raises(GatewayUnavailableError, match="does not answer"):
        client.health()


def test_somebody_else_listens(not_a_gateway: str) -> None:
    with pytest.raises(GatewayUnavailableError):
        _open_and_close(Target(not_a_gateway, "t"))
    with GatewayClient(not_a_gateway, "t") as client, pytest.raises(GatewayUnavailableError, match="something else"):
        client.health()


def test_a_redirect_is_not_followed_with_the_token() -> None:
    asked: list[str] = []

    class Redirecting(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"ws://127.0.0.1:{self.server.server_address[1]}/login")
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    async def follow(target: Target) -> None:
        async for _ in follow_run(target, "r1", 0, 60.0):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever).start()
        target = Target(f"http://127.0.0.1:{server.server_address[1]}", "t", configured=True)
        try:
            with pytest.raises(WrongAddressError, match="HTTP 302: not a gateway"):
                asyncio.run(follow(target))
        finally:
            server.shutdown()
    assert asked == ["/v1/runs/r1/events?after=0"]


def test_a_connection_that_is_reset_before_the_greeting_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a gateway that is killed: else the session's thread would end, and no kernel come back."""
    server = socket.create_server(("127.0.0.1", 0))
    greet = ClientConnection.handshake

    async def greet_late(link: ClientConnection, *arguments: object) -> None:
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing it is a reset
        peer.close()
        await link.wait_closed()
        await greet(link, *arguments)

    monkeypatch.setattr(ClientConnection, "handshake", greet_late)
    target = Target(f"http://127.0.0.1:{server.getsockname()[1]}", "t")
    with server, pytest.raises(GatewayUnavailableError, match="does not answer"):
        _open_and_close(target)


def test_connecting_ends_in_time_with_the_reason(nobody: str, until: Callable[..., None]) -> None:
    session = GatewaySession(Target(nobody, "t"), "s")
    with pytest.raises(GatewayUnavailableError):
        session.connect(0.0)  # begins
    until(lambda: session.trouble is not None, "the first refusal")
    with pytest.raises(GatewayUnavailableError, match="Connection refused"):
        session.connect(0.3)
    session.close()


def test_somebody_else_is_no_gateway_however_long_one_waits(not_a_gateway: str) -> None:
    session = GatewaySession(Target(not_a_gateway, "t", configured=True), "s")
    began = time.monotonic()
    with pytest.raises(WrongAddressError, match="HTTP 200: not a gateway"):
        session.connect(200)
    assert time.monotonic() - began < 100
    session.close()


@pytest.mark.parametrize("not_a_gateway", ["401 Unauthorized", "403 Forbidden"], indirect=True)
def test_a_proxy_that_wants_another_login_is_not_taken_for_the_gateway(not_a_gateway: str) -> None:
    with pytest.raises(WrongAddressError, match=r"HTTP 40\d: not a gateway"):
        _open_and_close(Target(not_a_gateway, "t"))
    with GatewayClient(not_a_gateway, "t") as client, pytest.raises(WrongAddressError, match=r"HTTP 40\d"):
        client.health()


@pytest.mark.parametrize(("status", "is_final"), [(404, True), (301, True), (502, False), (503, False)])
def test_what_a_proxy_says_while_the_gateway_restarts_passes(status: int, is_final: bool) -> None:
    assert isinstance(not_a_gateway_error("http://x", status, configured=True), WrongAddressError) == is_final


def test_a_configured_gateway_is_mended_where_it_is_configured(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_URL", nobody)
    with pytest.raises(GatewayUnavailableError, match="set by JUPYTER_GPU_URL") as refused:
        GatewayClient.for_target(Target(nobody, "t", configured=True)).health()
    assert "unset JUPYTER_GPU_URL" in refused.value.hint
    assert is_refused(refused.value)
    monkeypatch.delenv("JUPYTER_GPU_URL")
    with pytest.raises(GatewayUnavailableError, match="set by the configuration file") as refused:
        GatewayClient.for_target(Target(nobody, "t", configured=True)).health()
    assert "GpuRelease.url" in refused.value.hint
    with pytest.raises(GatewayUnavailableError) as refused:
        GatewayClient.for_target(Target(nobody, "t")).health()
    assert "jupyter gpu start" in refused.value.hint


def test_a_name_that_is_not_resolved() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    found = unreachable("http://x", error, configured=False)
    assert isinstance(found, WrongAddressError)
    assert "its name is not resolved: Name or service not known" in found.message
    later = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert not isinstance(unreachable("http://x", later, configured=False), WrongAddressError)


class Link:
    """A connection that takes what it is given, once it may."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.may = threading.Event()

    async def send(self, data: bytes) -> None:
        while not self.may.is_set():
            await asyncio.sleep(0.001)
        self.sent.append(data)

    async def close(self) -> None:
        self.may.set()


def test_what_is_to_be_written_at_once_is_written_when_the_call_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link()
    thread = LoopThread("writes", lambda: queue.write_forever())
    queue = SendQueue(lambda: link, thread.call)
    thread.begin()
    queue.put_message(Heartbeat(1.0), at_once=True)  # the connection takes nothing: it is not waited for
    assert link.sent == []
    monkeypatch.setattr(websocket, "_WRITTEN_S", 60.0)
    link.may.set()
    queue.put_message(Heartbeat(2.0), at_once=True)
    assert link.sent == [encode(Heartbeat(1.0)), encode(Heartbeat(2.0))]
    queue.put_message(None)
    thread.end(60.0)
