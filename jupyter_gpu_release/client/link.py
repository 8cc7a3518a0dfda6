"""Opening the WebSocket to a gateway, with failures as our own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ..core.messages import decode
from ..core.session_messages import GatewayMessage
from ..errors import AuthenticationError, ForbiddenError, GatewayUnavailableError, GpuReleaseError, from_code
from .unreachable import not_a_gateway, unreachable

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
            open_timeout=timeout_s,
            ping_interval=None,  # the session has its own heartbeats
            close_timeout=1,
            max_size=MAX_FRAME_BYTES,
        )
        link = connection.__enter__()
    except InvalidStatus as error:
        raise refusal(error.response, target) from error
    except (OSError, TimeoutError, WebSocketException, EOFError) as error:
        raise unreachable(target.url, error, configured=target.configured) from error
    try:
        yield link
    finally:
        connection.__exit__(None, None, None)


def session_url(url: str) -> str:
    """``http://host:port`` → ``ws://host:port/v1/session``."""
    parts = urlsplit(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + "/v1/session", "", ""))


def refusal(response: Response, target: Target) -> GpuReleaseError:
    """The error that an HTTP answer to the upgrade stands for."""
    try:
        facts = msgspec.json.decode(response.body or b"")["error"]
        return from_code(facts["code"], facts["message"], facts.get("mend", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        pass
    if response.status_code == 401:
        return AuthenticationError(f"the gateway {target.url} does not know this token", mend="check JUPYTER_GPU_TOKEN")
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
        raise GatewayUnavailableError("the gateway closed the connection", mend=_DOCTOR) from error
    except msgspec.MsgspecError as error:
        raise GatewayUnavailableError(f"the gateway sent what is no message: {error}", mend=_DOCTOR) from error
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
