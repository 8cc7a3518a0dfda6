"""A session that comes back: when it tries, and what it says once more."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from websockets.sync.server import ServerConnection, serve

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.protocol.session import ClientMessage, Hello, Signal, Welcome
from jupyter_gpu_release.protocol.wire import decode, encode


def test_it_is_back_before_its_grace_is_over_however_long_the_gateway_was_away(
    monkeypatch: pytest.MonkeyPatch, until: Callable[..., None]
) -> None:
    """Else what it keeps there (GPUs, results) is given up, although it is there."""
    grace_s = GatewayConfig("", "", "", "", "").reconnect_grace_s
    session = GatewaySession(Target("http://127.0.0.1:9", "token"), "s")
    pauses: list[float] = []

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)  # nothing is waited for
        if len(pauses) == 30:
            session.close(0.0)

    monkeypatch.setattr(session, "_pause", pause)
    with pytest.raises(GatewayUnavailableError):
        session.connect(0.0)
    until(lambda: len(pauses) >= 30, "thirty tries")
    assert pauses[0] < 0.1
    assert max(pauses) < grace_s / 2


class _Gateway:
    """One that greets, and hangs up on the first signal of its first connection without a word."""

    def __init__(self) -> None:
        self.signals: list[list[Signal]] = []
        self._server = serve(self._talk, "127.0.0.1", 0, compression=None)
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _talk(self, link: ServerConnection) -> None:
        heard: list[Signal] = []
        self.signals.append(heard)
        for data in link:
            message = decode(data, ClientMessage)
            if isinstance(message, Hello):
                link.send(encode(Welcome(message.protocol, "", "ann", simulated=True, gpus_total=1, store="")))
            elif isinstance(message, Signal):
                heard.append(message)
                if len(self.signals) == 1:
                    return

    def end(self) -> None:
        self._server.shutdown()


def test_what_was_said_on_a_connection_that_died_is_said_again(until: Callable[..., None]) -> None:
    gateway = _Gateway()
    session = GatewaySession(Target(gateway.url, "token"), "s")
    try:
        session.connect()
        session.signal("20260101-000000-00000001")
        until(lambda: len(gateway.signals) > 1 and gateway.signals[1], "the signal, once more")
        assert gateway.signals[0] == gateway.signals[1], "the same one: it counts once"
    finally:
        session.close()
        gateway.end()
