"""Calls between two processes of one user on one machine, over a Unix socket.

A call through Ray takes 2–6 ms of two busy cores, one of these a few tenths.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec

from ..protocol.wire import decode, encode
from .background import BackgroundWork

#: carries out a call of the other side: method, arguments, named arguments
Answering = Callable[[str, list[Any], dict[str, Any]], Coroutine[Any, Any, Any]]
_LENGTH = struct.Struct("!I")
_CREDENTIALS = struct.Struct("3i")


class LocalCallError(Exception):
    """A call that came to nothing: the other side has raised, and this says what."""


class ConnectionClosedError(LocalCallError):
    """The connection is gone; it is not known if the call was carried out."""


class _Call(msgspec.Struct, array_like=True, tag=0):
    number: int
    method: str
    arguments: list[Any]
    named: dict[str, Any]


class _Answer(msgspec.Struct, array_like=True, tag=1):
    number: int
    value: Any
    problem: str


class LocalConnection(asyncio.Protocol):
    """One connection, by which both sides call each other. Everything happens on the event loop.

    ``answering`` carries out the other side's calls: each has a task of its own, and they begin in the order in which
    they were sent. ``on_open`` hears of it once it is known that the other side is of the same user, ``on_close`` when
    the connection is gone, by whichever side.
    """

    def __init__(
        self,
        answering: Answering,
        on_open: Callable[[LocalConnection], None] = lambda _opened: None,
        on_close: Callable[[LocalConnection], None] = lambda _closed: None,
    ) -> None:
        self._answering = answering
        self._on_open = on_open
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._spawn = BackgroundWork().spawn

    @property
    def is_open(self) -> bool:
        """Tell if calls can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def call(self, method: str, /, *arguments: object, **named: object) -> asyncio.Future[Any]:
        """Send a call. Its future raises :class:`LocalCallError`; nobody need wait for it."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not self.is_open:
            answer.set_exception(ConnectionClosedError("the connection is closed"))
            return answer
        self._calls += 1
        number = self._calls
        self._waiting[number] = answer
        answer.add_done_callback(lambda _: self._waiting.pop(number, None))
        self._send(_Call(number, method, list(arguments), named))
        return answer

    def close(self) -> None:
        """Close it at once; calls that wait fail."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------------- asyncio's side
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Listen to the same user only, whoever may open the folder of the socket."""
        self._transport = cast("asyncio.Transport", transport)
        if peer_user(transport.get_extra_info("socket")) != os.geteuid():
            self._transport.abort()
        else:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Take in what has arrived whole."""
        self._received += data
        begin = 0
        while (start := begin + _LENGTH.size) <= len(self._received):
            (size,) = _LENGTH.unpack_from(self._received, begin)
            if len(self._received) < start + size:
                break
            begin = start + size
            if self.is_open:
                self._take(decode(bytes(self._received[start:begin]), _Call | _Answer))
        del self._received[:begin]

    def connection_lost(self, _error: Exception | None) -> None:
        """The other side has ended, or one of them has closed it."""
        self._transport = None
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(ConnectionClosedError("the connection was closed"))
        self._on_close(self)

    # ------------------------------------------------------------------------------ the inside
    def _send(self, frame: _Call | _Answer) -> None:
        if self._transport is not None and not self._transport.is_closing():
            body = encode(frame)
            self._transport.write(_LENGTH.pack(len(body)) + body)

    def _take(self, frame: _Call | _Answer) -> None:
        if isinstance(frame, _Call):
            self._spawn(self._answer(frame))
            return
        answer = self._waiting.get(frame.number)
        if answer is None or answer.done():  # nobody waits any more
            return
        if frame.problem:
            answer.set_exception(LocalCallError(frame.problem))
        else:
            answer.set_result(frame.value)

    async def _answer(self, call: _Call) -> None:
        value, problem = None, ""
        try:
            value = await self._answering(call.method, call.arguments, call.named)
        except Exception as error:  # noqa: BLE001 - told to the caller, as Ray does
            problem = f"{type(error).__name__}: {error}"
        self._send(_Answer(call.number, value, problem))


def answering_for(target: object, contract: type) -> Answering:
    """Have ``target`` answer the calls of an abstract class, and no others."""
    names: frozenset[str] = contract.__abstractmethods__  # type: ignore[attr-defined]

    async def answer(method: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        if method not in names:
            raise LocalCallError(f"there is no call {method!r}")
        return await getattr(target, method)(*arguments, **named)

    return answer


def peer_user(sock: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel knows it."""
    _pid, user, _group = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)
