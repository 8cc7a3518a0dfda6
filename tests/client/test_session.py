"""A session that comes back: when it tries, and what it says once more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from websockets.sync.server import ServerConnection, serve

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import ConnectionBack, ConnectionLost, GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import (
    ClientMessage,
    Heartbeat,
    Hello,
    Refused,
    Signal,
    Submit,
    Subscribe,
    Welcome,
)
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
    """One that greets, hangs up on the first such message of its first connection, and refuses later requests."""

    def __init__(self, hangs_up_on: type[Signal | Submit]) -> None:
        self.heard: list[list[ClientMessage]] = []
        self.subscribed: list[Subscribe] = []
        #: done before it greets
        self.on_hello: Callable[[], object] = lambda: None
        self._hangs_up_on = hangs_up_on
        self._server = serve(self._talk, "127.0.0.1", 0, compression=None)
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _talk(self, link: ServerConnection) -> None:
        heard: list[ClientMessage] = []
        self.heard.append(heard)
        for data in link:
            message = decode(data, ClientMessage)
            if isinstance(message, Hello):
                self.on_hello()
                link.send(encode(Welcome(message.protocol, "", "ann", simulated=True, gpus_total=1, store="")))
            elif isinstance(message, self._hangs_up_on):
                heard.append(message)
                if len(self.heard) == 1:
                    return
                if isinstance(message, Submit):
                    link.send(encode(Refused(message.request.run, "impossible_ask", "no")))
            elif isinstance(message, Subscribe):
                self.subscribed.append(message)

    def end(self) -> None:
        self._server.shutdown()


def test_what_was_said_on_a_connection_that_died_is_said_again(until: Callable[..., None]) -> None:
    gateway = _Gateway(Signal)
    session = GatewaySession(Target(gateway.url, "token"), "s")
    try:
        session.connect()
        feed = session.follow("20260101-000000-00000001")
        session.signal("20260101-000000-00000001")
        until(lambda: len(gateway.heard) > 1 and gateway.heard[1], "the signal, once more")
        assert gateway.heard[0] == gateway.heard[1], "the same one: it counts once"
    finally:
        session.close()
        gateway.end()
    *_, last = iter(lambda: feed.next_item(0.0), None)
    assert isinstance(last, ConnectionLost)
    assert last.final, "who still follows waits for nothing"


def test_a_request_is_sent_until_it_is_answered_and_its_feed_hears_how_it_went(until: Callable[..., None]) -> None:
    gateway = _Gateway(Submit)
    session = GatewaySession(Target(gateway.url, "token"), "s")
    try:
        session.connect()
        feed = session.submit(RunRequest("20260101-000000-00000001", "s", ResourceAsk(), b""))
        kinds = [type(feed.next_item(60)) for _ in range(3)]
        assert kinds == [ConnectionLost, ConnectionBack, Refused]
        assert gateway.heard[0] == gateway.heard[1]
        until(lambda: session._feeds.all() == [], "nothing more is heard of it")
        assert (session.trouble, session.silent_s) == (None, 0.0)
    finally:
        session.close()
        gateway.end()


def test_who_begins_to_follow_a_run_while_the_session_comes_back_hears_all_of_it(until: Callable[..., None]) -> None:
    """Another feed of that run has its events, and so the session has asked for later ones only."""
    run = "20260101-000000-00000001"
    gateway = _Gateway(Signal)
    session = GatewaySession(Target(gateway.url, "token"), "s")
    try:
        session.connect()
        session.follow(run, after=5)
        until(lambda: gateway.subscribed == [Subscribe(run, 5)], "the subscription")
        gateway.on_hello = lambda: session.follow(run)
        session.signal(run)
        until(lambda: gateway.subscribed[1:] == [Subscribe(run, 0)], "the one that asks for all of it")
    finally:
        session.close()
        gateway.end()


class _Beats:
    """A link on a loop whose clock each message moves forward; behind the last one comes nothing."""

    def __init__(self, every_s: float, beats: int) -> None:
        self._every_s, self.left, self._ahead_s = every_s, beats, 0.0
        loop = asyncio.get_running_loop()
        clock = loop.time
        loop.time = lambda: clock() + self._ahead_s  # type: ignore[method-assign]

    async def recv(self) -> bytes:
        self._ahead_s += self._every_s
        await asyncio.sleep(0)
        if not self.left:
            self._ahead_s += self._every_s
            await asyncio.Event().wait()
        self.left -= 1
        return encode(Heartbeat())


def test_each_message_gives_a_gateway_the_whole_time_anew_in_which_it_may_be_silent() -> None:
    session = GatewaySession(Target("http://127.0.0.1:9", "token"), "s", silence_s=900.0)

    async def read() -> None:
        link = _Beats(600.0, 5)
        with pytest.raises(GatewayUnavailableError, match="fell silent"):
            await session._read(link)  # type: ignore[arg-type]
        assert link.left == 0

    asyncio.run(read())
