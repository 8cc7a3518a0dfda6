"""Messages to a page leave at once: none waits until the one before it is acknowledged."""

from __future__ import annotations

import ctypes
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from server_bed import API, LIMIT_S, ServerBed
from websockets.sync.client import connect

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.store.event_log import EventWriter
from jupyter_gpu_release.store.layout import RunPaths

_PIDFD_GETFD = 438


def test_messages_of_a_kernel(server: ServerBed) -> None:
    kernel = server.start_kernel()
    url = f"{server.url.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels?token={server.token}"
    with connect(url, proxy=None, open_timeout=LIMIT_S) as page:
        page.send(json.dumps(_QUESTION))
        while json.loads(page.recv(LIMIT_S))["msg_type"] != "kernel_info_reply":
            pass
        assert _sends_at_once(server, page.socket)


def test_the_output_of_a_run(server: ServerBed) -> None:
    run = "20261126-010203-abcdef01"
    paths = RunPaths.of(HomePaths(server.folder / "gpu-home").store, run)
    paths.manifest.parent.mkdir(parents=True)
    paths.manifest.write_text(json.dumps({"schema_version": 1, "run": run, "user": "ada", "state": "running"}))
    log = EventWriter(paths.events)
    text = "x" * 100_000  # more of it than fits between the two: the server still sends when it is asked
    log.write([Event(number, 0.0, "stream", {"name": "stdout", "text": text}) for number in range(1, 201)])
    log.close()
    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port), LIMIT_S) as page:
        page.sendall(_UPGRADE.format(path=f"{API}/runs/{run}/output", token=server.token).encode())
        while not page.recv(1 << 16, socket.MSG_PEEK).partition(b"\r\n\r\n")[2]:
            pass  # the head of the answer, then the output begins
        assert _sends_at_once(server, page)


_QUESTION = {
    "header": {"msg_id": "1", "msg_type": "kernel_info_request", "username": "", "session": "s", "version": "5.4"},
    "parent_header": {},
    "metadata": {},
    "content": {},
    "channel": "shell",
    "buffers": [],
}


_UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: token {token}\r\n\r\n"
)


def _sends_at_once(server: ServerBed, page: socket.socket) -> bool:
    """Ask the server's own end of the connection."""
    with _end_in(server.process.pid, page.getsockname()) as end:
        return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


@contextmanager
def _end_in(pid: int, peer: tuple[str, int]) -> Iterator[socket.socket]:
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
            fd = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, int(name), 0)
            assert fd >= 0, os.strerror(ctypes.get_errno())
            with socket.socket(fileno=fd) as end:
                if end.family == socket.AF_INET and _peer(end) == peer:
                    yield end
                    return
    finally:
        os.close(process)
    raise AssertionError(f"the server has no connection to {peer}")


def _peer(end: socket.socket) -> tuple[str, int] | None:
    try:
        address: tuple[str, int] = end.getpeername()
    except OSError:  # it listens
        return None
    return address
