"""The WebSocket: outgoing queue, heartbeat, resend until acknowledged, exit and fork hooks."""

from __future__ import annotations

import atexit
import math
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from ..errors import AuthenticationError, ForbiddenError, GatewayUnavailableError, GpuReleaseError, from_code
from ..host.interruptible import InterruptibleEvent
from ..protocol.session import ClientMessage, Detach, Events, GatewayMessage, Heartbeat, Signal, Supply, Update
from ..protocol.wire import decode, encode
from ..settings.built_in import BUILT_IN
from .discovery import not_a_gateway, unreachable

if TYPE_CHECKING:
    from websockets.http11 import Response
    from websockets.sync.client import ClientConnection

    from .discovery import Target

#: Values inside messages are small, single events (a large image) need not be.
MAX_FRAME_BYTES = 256 << 20
_DOCTOR = "`jupyter gpu doctor` looks for the reason"


@contextmanager
def open_link(target: Target, timeout_s: float) -> Iterator[ClientConnection]:
    """The session socket of ``target``, closed at the end of the block.

    Raises :class:`GatewayUnavailableError` (worth another try) or what the gateway refuses with
    (:class:`AuthenticationError`, :class:`ForbiddenError` …: not worth one).
    """
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.sync.client import connect

    try:
        connection = connect(
            session_url(target.url),
            additional_headers={"Authorization": f"Bearer {target.token}"},
            compression=None,
            proxy=None if target.is_loopback else True,
            ssl=target.tls(),
            open_timeout=timeout_s,
            ping_interval=None,  # the session has its own heartbeats
            close_timeout=1,
            max_size=MAX_FRAME_BYTES,
        )
        link = connection.__enter__()
    except InvalidStatus as error:
        raise refusal_error(error.response, target) from error
    except (OSError, TimeoutError, WebSocketException, EOFError) as error:
        raise unreachable(target.url, error, configured=target.configured) from error
    try:
        yield link
    finally:
        connection.__exit__(None, None, None)


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
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosedError, InvalidStatus, WebSocketException

    class Connect(connect):
        """Follows no redirect: versions before 17 take the token along, to whatever host."""

        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    connecting = Connect(
        _socket_url(target.url, f"/v1/runs/{quote(run, safe='')}/events", f"after={after}"),
        additional_headers={"Authorization": f"Bearer {target.token}"},
        compression=None,
        proxy=None if target.is_loopback else True,
        ssl=target.tls(),
        open_timeout=timeout_s,
        close_timeout=1,
        max_size=MAX_FRAME_BYTES,
    )
    try:
        async with connecting as link:
            async for data in link:
                yield msgspec.json.decode(data, type=Events | Update)
    except InvalidStatus as error:
        raise refusal_error(error.response, target) from error
    except (OSError, TimeoutError, ConnectionClosedError, WebSocketException, EOFError) as error:
        raise unreachable(target.url, error, configured=target.configured) from error
    except msgspec.MsgspecError as error:
        raise GatewayUnavailableError(f"the gateway sent what is no message: {error}", hint=_DOCTOR) from error


def refusal_error(response: Response, target: Target) -> GpuReleaseError:
    """The error that an HTTP answer to the upgrade stands for."""
    try:
        facts = msgspec.json.decode(response.body or b"")["error"]
        return from_code(facts["code"], facts["message"], facts.get("mend", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    if response.status_code == 401:
        return AuthenticationError(f"the gateway {target.url} does not know this token", hint="check JUPYTER_GPU_TOKEN")
    if response.status_code == 403:
        return ForbiddenError(f"the gateway {target.url} refuses this client")
    return not_a_gateway(target.url, response.status_code, configured=target.configured)


def receive(link: ClientConnection, timeout_s: float) -> GatewayMessage | None:
    """The next message, or None after ``timeout_s``; raises :class:`GatewayUnavailableError` when the link is gone."""
    from websockets.exceptions import ConnectionClosed

    try:
        data = link.recv(timeout=timeout_s)
        message: GatewayMessage = decode(data if isinstance(data, bytes) else data.encode(), GatewayMessage)
    except TimeoutError:
        return None
    except ConnectionClosed as error:
        raise GatewayUnavailableError("the gateway closed the connection", hint=_DOCTOR) from error
    except msgspec.MsgspecError as error:
        raise GatewayUnavailableError(f"the gateway sent what is no message: {error}", hint=_DOCTOR) from error
    return message


def own_end(link: ClientConnection) -> str:
    """Address and port of this end; empty for a link that is gone."""
    with suppress(OSError):
        host, port, *_ = link.socket.getsockname()
        return f"{host} {port}"
    return ""


def send(link: ClientConnection, data: bytes) -> None:
    """Send; on a link that is gone this does nothing (the reader notices and reconnects)."""
    from websockets.exceptions import ConnectionClosed

    with suppress(ConnectionClosed):
        link.send(data)


HEARTBEAT_S: float = BUILT_IN["heartbeat_s"].default
#: whoever waits for a message to be written waits no longer: the connection may be slow, or there may be none
_WRITTEN_S = 0.005
#: for the thread that writes, when the session is closed
_LAST_WORDS_S = 5.0


class SendQueue:
    """``link``: the connection; what is written while there is none is gone."""

    def __init__(self, link: Callable[[], ClientConnection | None]) -> None:
        self._link = link
        self._messages: queue.SimpleQueue[tuple[bytes | None, InterruptibleEvent | None]] = queue.SimpleQueue()
        self._over = InterruptibleEvent()

    def put_message(self, message: ClientMessage | None, *, at_once: bool = False) -> None:
        """Have it written; None: the last one was, the connection is to be closed.

        Never blocks, or (``at_once``) some milliseconds: else the thread that writes gets Python's lock only when the
        caller has nothing more to do. Raises what encoding raises: here, where somebody hears of it.
        """
        written = InterruptibleEvent() if at_once else None
        self._messages.put((encode(message) if message is not None else None, written))
        if written is not None:
            written.wait(_WRITTEN_S)

    def wait_until_over(self) -> None:
        """Return when the last message is written: who closes the connection before takes the good-bye's way."""
        self._over.wait(_LAST_WORDS_S)

    def write_forever(self) -> None:
        """The thread's work."""
        beat_at = time.monotonic() + HEARTBEAT_S
        while True:
            try:
                data, written = self._messages.get(timeout=max(0.0, beat_at - time.monotonic()))
            except queue.Empty:
                data, written = encode(Heartbeat(time.time())), None
                beat_at = time.monotonic() + HEARTBEAT_S
            link = self._link()
            if data is None:
                self._over.set()
                if link is not None:
                    link.close()
                return
            if link is not None:
                send(link, data)
            if written is not None:
                written.set()


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


class ThreadGroup:
    """Daemon threads, by name what each does. A KeyboardInterrupt in the caller leaves all of them begun, or none."""

    def __init__(self, works: Mapping[str, Callable[[], None]]) -> None:
        self._works = works
        self._threads: list[threading.Thread] = []
        self._is_over = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Return when they have begun; once they have, or after :meth:`end`, nothing is done."""
        if self._threads or self._is_over:
            return
        starter = threading.Thread(target=self._begin_all, name="gpu-starter", daemon=True)  # nothing strikes that
        starter.start()
        starter.join()

    def _begin_all(self) -> None:
        with self._lock:
            if self._threads or self._is_over:
                return
            for name, work in self._works.items():
                thread = threading.Thread(target=work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    def end(self, timeout_s: float) -> None:
        """Wait for each (that was told to end), but not longer than ``timeout_s``; none begins any more."""
        with self._lock:
            self._is_over = True
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)


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
