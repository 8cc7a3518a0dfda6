"""What a failed connection is called."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.link import open_link, session_url
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError


def test_session_urls() -> None:
    assert session_url("http://a:1") == "ws://a:1/v1/session"
    assert session_url("https://a/prefix") == "wss://a/prefix/v1/session"


@pytest.fixture
def nobody() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def not_a_gateway() -> Iterator[str]:
    """Answers every connection with HTML."""
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
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>")

    thread = threading.Thread(target=answer)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    over.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_nobody_listens(nobody: str) -> None:
    with pytest.raises(GatewayUnavailableError, match="does not answer") as refused, open_link(Target(nobody, "t"), 5):
        pass
    assert refused.value.mend
    with GatewayClient(nobody, "t") as client, pytest.raises(GatewayUnavailableError, match="does not answer"):
        client.health()


def test_somebody_else_listens(not_a_gateway: str) -> None:
    with pytest.raises(GatewayUnavailableError), open_link(Target(not_a_gateway, "t"), 5):
        pass
    with GatewayClient(not_a_gateway, "t") as client, pytest.raises(GatewayUnavailableError, match="something else"):
        client.health()


def test_connecting_ends_in_time_with_the_reason(nobody: str) -> None:
    session = GatewaySession(Target(nobody, "t"), "s")
    with pytest.raises(GatewayUnavailableError, match="Connection refused"):
        session.connect(0.3)
    session.close()
