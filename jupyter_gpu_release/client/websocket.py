"""The WebSocket: outgoing queue, heartbeat, resend until acknowledged, exit and fork hooks."""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import queue
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from ..errors import GatewayUnavailableError
from ..host.interruptible import InterruptibleEvent
from ..protocol.session import ClientMessage, Detach, Events, GatewayMessage, Heartbeat, Signal, Supply, Update
from ..protocol.wire import decode, encode
from ..settings.built_in import BUILT_IN
from .discovery import refusal_error, unreachable

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection, connect

    from .discovery import Target

#: Values inside messages are small, single events (a large image) need not be.
MAX_FRAME_BYTES = 256 << 20
_DOCTOR = "`jupyter gpu doctor` looks for the reason"


@asynccontextmanager
async def open_link(target: Target, timeout_s: float) -> AsyncIterator[ClientConnection]:
    """The session socket of ``target``, closed at the end of the block.

    Raises :class:`GatewayUnavailableError` (worth another try) or what the gateway refuses with
    (:class:`AuthenticationError`, :class:`ForbiddenError` …: not worth one).
    """
    with _own_errors(target):
        link = await _connecting(target, session_url(target.url), timeout_s, ping_interval=None)  # it has heartbeats
    try:
        yield link
    finally:
        await link.close()


def _connecting(target: Target, url: str, timeout_s: float, *, ping_interval: float | None) -> connect:
    from websockets.asyncio.client import connect

    class Connect(connect):
        """Follows no redirect: versions before 17 take the token along, to whatever host."""

        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    return Connect(
        url,
        additional_headers={"Authorization": f"Bearer {target.token}"},
        compression=None,
        proxy=None if target.is_loopback else True,
        ssl=target.tls(),
        open_timeout=timeout_s,
        ping_interval=ping_interval,
        close_timeout=1,
        max_size=MAX_FRAME_BYTES,
    )


@contextmanager
def _own_errors(target: Target) -> Iterator[None]:
    from websockets.exceptions import InvalidStatus, WebSocketException

    try:
        yield
    except InvalidStatus as error:
        answer = error.response
        raise refusal_error(target.url, answer.status_code, answer.body or b"", configured=target.configured) from error
    except OSError as error:
        raise unreachable(target.url, _as_of_a_socket(error), configured=target.configured) from error
    except (WebSocketException, EOFError) as error:
        raise unreachable(target.url, error, configured=target.configured) from error


def _as_of_a_socket(error: OSError) -> OSError:
    """Of asyncio's "Connect call failed", for one address or several, the error that the last one met."""
    if "Connect call failed" in str(error):
        number = int(re.findall(r"\[Errno (\d+)\]", str(error))[-1])
        return OSError(number, os.strerror(number))
    return error


def session_url(url: str) -> str:
    """``http://host:port`` → ``ws://host:port/v1/session``."""
    return _socket_url(url, "/v1/session")


def _socket_url(url: str, path: str, query: str = "") -> str:
    parts = urlsplit(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + path, query, ""))


async def follow_run(target: Target, run: str, after: int, timeout_s: float) -> AsyncGenerator[Events | Update, None]:
    """A run's output above event ``after`` and its views, as they come; ends when the run is over.

    For programs with an event loop that only look on. Raises as :func:`open_link` does, also when the connection is
    lost on the way.
    """
    url = _socket_url(target.url, f"/v1/runs/{quote(run, safe='')}/events", f"after={after}")
    try:
        with _own_errors(target):
            async with _connecting(target, url, timeout_s, ping_interval=20) as link:
                async for data in link:
                    yield msgspec.json.decode(data, type=Events | Update)
    except msgspec.MsgspecError as error:
        raise GatewayUnavailableError(f"the gateway sent what is no message: {error}", hint=_DOCTOR) from error


async def receive(link: ClientConnection) -> GatewayMessage:
    """The next message; raises :class:`GatewayUnavailableError` when the link is gone."""
    from websockets.exceptions import ConnectionClosed

    try:
        data = await link.recv()
        message: GatewayMessage = decode(data if isinstance(data, bytes) else data.encode(), GatewayMessage)
    except ConnectionClosed as error:
        raise GatewayUnavailableError("the gateway closed the connection", hint=_DOCTOR) from error
    except msgspec.MsgspecError as error:
        raise GatewayUnavailableError(f"the gateway sent what is no message: {error}", hint=_DOCTOR) from error
    return message


def own_end(link: ClientConnection) -> str:
    """Address and port of this end; empty for a link that is gone."""
    host, port, *_ = link.local_address or ("", "")
    return f"{host} {port}".strip()


async def send(link: ClientConnection, data: bytes) -> None:
    """Send; on a link that is gone this does nothing (the reader notices and reconnects)."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed):
        await link.send(data)


def forget_link_in_fork(link: ClientConnection) -> None:
    """Let a forked child hold no copy of the socket, which would outlive the kernel."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, link.transport.get_extra_info("socket").fileno())  # the number stays its object's
        os.close(nowhere)


HEARTBEAT_S: float = BUILT_IN["heartbeat_s"].default
#: whoever waits for a message to be written waits no longer: the connection may be slow, or there may be none
_WRITTEN_S = 0.005


class LoopThread:
    """A daemon thread with an event loop. A KeyboardInterrupt in the caller leaves it begun, or not."""

    def __init__(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._name = name
        self._work = work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Return when it has begun; once it has, or after :meth:`end`, nothing is done."""
        if self._thread is not None or self._is_over:
            return
        starter = threading.Thread(target=self._begin, name="gpu-starter", daemon=True)  # nothing strikes that
        starter.start()
        starter.join()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_over:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        self._loop = asyncio.SelectorEventLoop()  # whatever policy the notebook has set
        try:
            self._loop.run_until_complete(self._work())
        finally:
            self._loop.close()

    def call(self, function: Callable[[], object]) -> None:
        """Have it called in the loop, from any thread; nothing is done before there is one, and after."""
        if self._loop is not None:
            with suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(function)

    def end(self, timeout_s: float) -> None:
        """Wait for it (that was told to end), but not longer than ``timeout_s``; it begins no more."""
        with self._lock:
            self._is_over = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)


class SendQueue:
    """``link``: the connection; what is written while there is none is gone. ``call``: see :meth:`LoopThread.call`."""

    def __init__(
        self, link: Callable[[], ClientConnection | None], call: Callable[[Callable[[], object]], None]
    ) -> None:
        self._link = link
        self._call = call
        self._messages: queue.SimpleQueue[tuple[bytes | None, InterruptibleEvent | None]] = queue.SimpleQueue()
        self._rung = asyncio.Event()

    def put_message(self, message: ClientMessage | None, *, at_once: bool = False) -> None:
        """Have it written; None: the last one was, the connection is to be closed.

        Never blocks, or (``at_once``) some milliseconds: else the thread that writes gets Python's lock only when the
        caller has nothing more to do. Raises what encoding raises: here, where somebody hears of it.
        """
        written = InterruptibleEvent() if at_once else None
        self._messages.put((encode(message) if message is not None else None, written))
        self._call(self._rung.set)
        if written is not None:
            written.wait(_WRITTEN_S)

    async def write_forever(self) -> None:
        """Until the last message was."""
        beat_at = time.monotonic() + HEARTBEAT_S
        while await self._write_all():
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, beat_at - time.monotonic())):
                    await self._rung.wait()
            if time.monotonic() >= beat_at:
                self._messages.put((encode(Heartbeat(time.time())), None))
                beat_at = time.monotonic() + HEARTBEAT_S

    async def _write_all(self) -> bool:
        """Write what waits; False: that was all there is."""
        self._rung.clear()
        while not self._messages.empty():
            data, written = self._messages.get_nowait()
            link = self._link()
            if link is not None:
                await (link.close() if data is None else send(link, data))
            if data is None:
                return False
            if written is not None:
                written.set()
        return True


class UnackedMessages:
    """Signals, detachments, values that were asked for: in order, until a heartbeat sent behind them is echoed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        #: with the number of the heartbeat behind it; None: not sent yet
        self._messages: deque[tuple[float | None, Signal | Detach | Supply]] = deque()

    def keep_message(self, message: Signal | Detach | Supply) -> None:
        """Keep a message that is to be sent."""
        with self._lock:
            self._messages.append((None, message))

    def due(self, *, again: bool = False) -> list[Signal | Detach | Supply | Heartbeat]:
        """The messages to be sent now, with the heartbeat behind them; ``again``: the connection is a new one."""
        with self._lock:
            due: list[Signal | Detach | Supply | Heartbeat] = [m for mark, m in self._messages if again or mark is None]
            if not due:
                return []
            self._number += 1
            behind = -float(self._number)  # no time, which the regular ones have
            self._messages = deque((behind if again or mark is None else mark, m) for mark, m in self._messages)
            return [*due, Heartbeat(behind)]

    def on_echo(self, echo: Heartbeat) -> None:
        """The gateway has heard this heartbeat, and all that was sent before it."""
        if echo.at_s < 0:
            with self._lock:
                while self._messages and (self._messages[0][0] or -math.inf) >= echo.at_s:
                    self._messages.popleft()


_GOODBYE_S = 0.5


class ExitHook(Protocol):
    """Something that is open until the process ends."""

    def close(self, timeout_s: float) -> None:
        """The process ends."""

    def forget_in_fork(self) -> None:
        """Let go of everything, in a forked child, without a message."""


_open: weakref.WeakSet[ExitHook] = weakref.WeakSet()


def end_with_process(session: ExitHook) -> None:
    """Close ``session`` when this process exits."""
    _open.add(session)


def _close_all() -> None:
    for session in list(_open):
        session.close(_GOODBYE_S)


def _forget_all_in_fork() -> None:
    for session in list(_open):
        session.forget_in_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all_in_fork)
