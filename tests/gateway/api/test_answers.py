"""Answers: what a request has changed is committed before it is answered, and whoever waits for long hears signs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from broker_bed import ANN, BrokerBed, until
from starlette.requests import Request
from starlette.websockets import WebSocket

from jupyter_gpu_release.gateway import service as service_module
from jupyter_gpu_release.gateway.api import session as session_module
from jupyter_gpu_release.gateway.api.app import _http_endpoint
from jupyter_gpu_release.gateway.api.guard import CALLER
from jupyter_gpu_release.gateway.api.http_connection import AT_ONCE
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.gateway.api.session import SessionConnection
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import (
    PROTOCOL,
    ClientMessage,
    GatewayMessage,
    Heartbeat,
    Hello,
    Refused,
    Signal,
    Submit,
    Welcome,
)
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode


@pytest.mark.asyncio
@pytest.mark.parametrize(("word", "state"), [("preempt", "yielding"), ("cancel", "cancelled")])
async def test_an_answer_waits_for_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, state: str
) -> None:
    bed, disk_is_back = BrokerBed(tmp_path, monkeypatch, a=1), threading.Event()
    (route,) = [route for route in ROUTES if route.path == f"/v1/runs/{{run}}/{word}"]
    async with bed.life() as service:
        record = await bed.running(service, restartable=True)
        if word == "cancel":
            record = await bed.submitted(service)
        asked = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
        scope = {**asked, "path_params": {"run": record.run}, CALLER: ANN}
        service.ledger.write(lambda link: disk_is_back.wait() and None)
        answer = asyncio.create_task(_http_endpoint(service, route)(Request(scope)))
        try:
            await asyncio.wait([answer], timeout=0.2)
            assert record.state.word == state
            assert not answer.done(), "it is not committed"
        finally:
            disk_is_back.set()
        assert (await answer).status_code == 200
    async with bed.life() as second:
        again = second.runs.find(record.run)
        assert again is not None
        assert again.state.word == state


class _Socket:
    """A kernel's end: what it sends, and all that it hears."""

    client = None

    def __init__(self, *messages: ClientMessage) -> None:
        self.scope: dict[str, Any] = {}
        self.heard: list[GatewayMessage] = []
        self._sent = [encode(message) for message in messages]

    async def accept(self) -> None: ...

    async def close(self, code: int) -> None: ...

    async def receive(self) -> dict[str, Any]:
        if not self._sent:
            await asyncio.Event().wait()
        return {"type": "websocket.receive", "bytes": self._sent.pop(0)}

    async def send_bytes(self, data: bytes) -> None:
        self.heard.append(decode(data, GatewayMessage))


@pytest.mark.asyncio
async def test_the_wait_for_a_node_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt of another run ends nobody's wait."""
    asked, other = RunRequest(new_run_id(), "s", ResourceAsk(), b""), new_run_id()
    socket = _Socket(Hello(PROTOCOL, "s"), Submit(asked))
    async with BrokerBed(tmp_path, monkeypatch, a=1).life() as service:
        service.agent_up.clear()
        connection = SessionConnection(service, cast(WebSocket, socket), ANN, lambda now_s: 0.0)
        serving = asyncio.create_task(connection.serve())
        await until(lambda: connection._submitting is not None)
        waiting = connection._submitting
        at_once = socket.scope[AT_ONCE]
        assert at_once(encode(Signal(other, "interrupt", "1"))) is None
        await asyncio.sleep(0)
        assert connection._submitting is waiting
        assert at_once(encode(Signal(asked.run, "interrupt", "2"))) is None
        await until(lambda: any(isinstance(message, Refused) for message in socket.heard))
        assert service.runs.find(asked.run) is None
        serving.cancel()
    refused = socket.heard[-1]
    assert isinstance(refused, Refused)
    assert (refused.run, refused.code) == (asked.run, "cancelled")
    assert refused.message == "interrupted before it was queued: no node agent is up: none has answered yet"


@pytest.mark.asyncio
async def test_a_submission_that_waits_for_a_node_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node has answered yet: the kernel hears signs of life, and then the reason."""
    monkeypatch.setattr(session_module, "_SIGN_S", 0.02)
    monkeypatch.setattr(service_module, "_AGENT_WAIT_S", 0.3)
    asked = RunRequest(new_run_id(), "s", ResourceAsk(), b"")
    socket = _Socket(Hello(PROTOCOL, "s"), Submit(asked))
    async with BrokerBed(tmp_path, monkeypatch, a=1).life() as service:
        service.agent_up.clear()
        connection = SessionConnection(service, cast(WebSocket, socket), ANN, lambda now_s: 0.0)
        serving = asyncio.create_task(connection.serve())
        await until(lambda: any(isinstance(message, Refused) for message in socket.heard))
        serving.cancel()
    welcome, *signs, refused = socket.heard
    assert isinstance(welcome, Welcome)
    assert len(signs) > 1
    assert {type(sign) for sign in signs} == {Heartbeat}
    assert isinstance(refused, Refused)
    assert (refused.run, refused.message) == (asked.run, "no node agent is up: none has answered yet")
