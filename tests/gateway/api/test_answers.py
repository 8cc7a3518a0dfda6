"""What a request has changed is committed before it is answered: a killed gateway forgets nothing that was said."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from broker_bed import ANN, BrokerBed
from starlette.requests import Request

from jupyter_gpu_release.gateway.api.app import _http_endpoint
from jupyter_gpu_release.gateway.api.guard import CALLER
from jupyter_gpu_release.gateway.api.route_table import ROUTES


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
        scope = {
            "type": "http", "method": "POST", "path": "/", "path_params": {"run": record.run}, "headers": [],
            "query_string": b"", CALLER: ANN,
        }  # fmt: skip
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
