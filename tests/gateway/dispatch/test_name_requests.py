"""Answers of kernels on their way to ranks that have asked, and those of kernels that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from feeds import Reading
from ray_bed import GatewayBed, request

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.gateway.runs.sessions import SessionTable
from jupyter_gpu_release.protocol.bounds import SmallBlob
from jupyter_gpu_release.protocol.cell import INLINE_LIMIT_BYTES, Graph
from jupyter_gpu_release.protocol.fetch import Answer
from jupyter_gpu_release.protocol.lineage import UsedInput
from jupyter_gpu_release.protocol.session import Supply
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode
from jupyter_gpu_release.store.layout import RunPaths


def _answer(gateway: GatewayBed, run: str, rank: int) -> Path:
    return RunPaths.of(Path(gateway.config.store), run).folder / f"answer-{rank}"


def test_what_the_kernel_gives_reaches_the_rank_and_is_an_input(
    gateway: GatewayBed, open_session: Callable[..., GatewaySession]
) -> None:
    earlier = new_run_id()
    asked = request("ask 3", "fetching", used=[UsedInput("x", "int")])
    session, other = open_session("fetching"), open_session("another-kernel")
    reading = Reading(session.submit(asked))
    reading.event(1)
    other.supply(Supply(asked.run, 3, encode(Answer(1, error="from another kernel"))))
    given = Answer(1, Graph(stream=b"v" * INLINE_LIMIT_BYTES), first=5)
    used = [UsedInput("big", "list", 7, earlier)]
    session.supply(Supply(asked.run, 3, encode(given), used))
    assert reading.end().state == "succeeded"
    assert decode(_answer(gateway, asked.run, 3).read_bytes(), Answer) == given
    with gateway.rest() as client:
        lineage = client.lineage(asked.run)
    assert [each.name for each in lineage.facts.used] == ["x", "big"]
    assert [(link.name, link.source) for link in lineage.links] == [("big", earlier)]


def test_more_than_a_small_value_is_refused(gateway: GatewayBed, open_session: Callable[..., GatewaySession]) -> None:
    limit = SmallBlob.__metadata__[0].max_length
    asked = request("ask 0", "large")
    session = open_session("large")
    reading = Reading(session.submit(asked))
    reading.event(1)
    session.supply(Supply(asked.run, body=bytes(limit + 1)))
    assert reading.refused().code == "bad_request"
    assert not _answer(gateway, asked.run, 0).exists()


def test_a_rank_whose_kernel_is_gone_is_told_so(gateway: GatewayBed, until: Callable[..., None]) -> None:
    asked = request("ask 0", "leaves")
    session = GatewaySession(gateway.target, "leaves")
    session.connect(60)
    Reading(session.submit(asked)).event(1)
    session.close()
    answer = _answer(gateway, asked.run, 0)
    until(answer.exists, "the gateway's answer")
    assert decode(answer.read_bytes(), Answer) == Answer(error="the notebook's kernel is gone")
    with gateway.rest() as client:
        until(lambda: client.run(asked.run).finished_at, "the run's end")


@pytest.mark.asyncio
async def test_a_kernel_that_stays_silent_answers_no_more_though_its_runs_go_on() -> None:
    alone, ended = [], []
    nothing: Any = SimpleNamespace(write=lambda *_: None)
    listener: Any = SimpleNamespace(on_session_lost=alone.append, on_session_ended=ended.append)
    table = SessionTable(nothing, 0.01, listener)
    wire: Any = SimpleNamespace(is_direct=False, close=lambda _reason: asyncio.sleep(0))
    session = await table.attach("k", "ann", wire)
    assert table.may_answer("k")
    session.heard_at -= 20
    await table.check_silence()
    assert (session.state, alone, table.may_answer("k")) == ("lost", [], True)
    while not alone:
        await asyncio.sleep(0)
    assert (session.state, alone, ended, table.may_answer("k")) == ("lost", ["k"], [], False)
    assert not table.may_answer("nobody")
