"""Calls between two processes of one machine: both ways, in order, with errors, and with an end that is noticed."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.host import unix_socket_calls
from jupyter_gpu_release.host.unix_socket_calls import (
    ConnectionClosedError,
    LocalCallError,
    LocalConnection,
    answering_for,
)
from jupyter_gpu_release.protocol.wire import encode


class _Contract(ABC):
    @abstractmethod
    async def double(self, data: bytes) -> bytes: ...

    @abstractmethod
    async def fail(self, why: str) -> None: ...

    @abstractmethod
    async def wait(self) -> None: ...


class _Side(_Contract):
    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.may_go_on = asyncio.Event()

    async def double(self, data: bytes) -> bytes:
        self.begun.append(len(data))
        return data * 2

    async def fail(self, why: str) -> None:
        raise ValueError(why)

    async def wait(self) -> None:
        self.begun.append("wait")
        await self.may_go_on.wait()

    async def secret(self) -> None:
        self.begun.append("secret")


@contextlib.asynccontextmanager
async def _connected(path: Path, here: _Side, there: _Side) -> AsyncIterator[tuple[LocalConnection, LocalConnection]]:
    """Both ends of a connection; the second one's listens."""
    opened: asyncio.Future[LocalConnection] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    answering = answering_for(there, _Contract)
    server = await loop.create_unix_server(lambda: LocalConnection(answering, opened.set_result), path)
    _, mine = await loop.create_unix_connection(lambda: LocalConnection(answering_for(here, _Contract)), path)
    try:
        yield mine, await opened
    finally:
        mine.close()
        server.close()


@pytest.mark.asyncio
async def test_both_sides_call_and_answers_are_those_of_their_calls(tmp_path: Path) -> None:
    here, there = _Side(), _Side()
    async with _connected(tmp_path / "s", here, there) as (mine, its):
        slow = mine.call("wait")
        sizes = (1, 3 << 20, 0, 70_000)  # a frame is more than what arrives in one go, or less
        assert await asyncio.gather(*(mine.call("double", b"x" * size) for size in sizes)) == [
            b"x" * (2 * size) for size in sizes
        ]
        assert there.begun == ["wait", *sizes], "they begin in the order in which they were sent"
        assert await its.call("double", data=b"ab") == b"abab"
        assert here.begun == [2]
        assert not slow.done()
        there.may_go_on.set()
        assert await slow is None


@pytest.mark.asyncio
async def test_what_a_call_raises_is_told_and_no_other_method_can_be_called(tmp_path: Path) -> None:
    there = _Side()
    async with _connected(tmp_path / "s", _Side(), there) as (mine, _):
        with pytest.raises(LocalCallError, match="ValueError: because"):
            await mine.call("fail", "because")
        with pytest.raises(LocalCallError, match="no call 'secret'"):
            await mine.call("secret")
        assert there.begun == []


@pytest.mark.asyncio
async def test_calls_that_wait_fail_when_the_other_side_ends(tmp_path: Path) -> None:
    there = _Side()
    async with _connected(tmp_path / "s", _Side(), there) as (mine, its):
        waits, given_up = mine.call("wait"), mine.call("wait")
        while len(there.begun) < 2:
            await asyncio.sleep(0)
        given_up.cancel()
        its.close()
        with pytest.raises(ConnectionClosedError):
            await waits
        assert not mine.is_open
        with pytest.raises(ConnectionClosedError):
            await mine.call("double", b"")


@pytest.mark.asyncio
async def test_another_user_is_not_listened_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[LocalConnection] = []
    there = _Side()
    answering = answering_for(there, _Contract)
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: LocalConnection(answering, opened.append), tmp_path / "s"
    )
    monkeypatch.setattr(unix_socket_calls.os, "geteuid", lambda: 12345)
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
    with contextlib.suppress(ConnectionError):
        writer.write(frame(0, 1, "double", [b"x"], {}))
        assert await reader.read() == b"", "it is hung up"
    assert (opened, there.begun) == ([], [])
    writer.close()
    server.close()


def frame(*content: object) -> bytes:
    """A message as it is sent, behind its length."""
    body = encode(content)
    return len(body).to_bytes(4, "big") + body
