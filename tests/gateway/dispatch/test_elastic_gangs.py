"""Restartable runs that move, grow and shrink: they stay what they asked for, and keep what is theirs meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import ray
from broker_bed import BrokerBed, until

from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import AttemptId, RunPhase
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, Save
from jupyter_gpu_release.protocol.states import RunState


def _elastic(gpus: int, least: int, **labels: str) -> ResourceAsk:
    return ResourceAsk(gpus=gpus, ranks=gpus, any_nodes=True, min_gpus=least, labels=labels)


def _label(bed: BrokerBed, monkeypatch: pytest.MonkeyPatch, **kinds: str) -> None:
    nodes = bed.ray.nodes

    def labelled() -> list[dict[str, Any]]:
        return [{**node, "Labels": {"kind": kinds[node["NodeID"]]}} for node in nodes()]

    monkeypatch.setattr(bed.ray, "nodes", labelled), monkeypatch.setattr(ray, "nodes", labelled)


def _later(service: GatewayService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elastic runs grow a while after they have begun. What ended until now did so before the clock is set on."""
    service.lifecycle.queue._serve_now()
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 120.0)


async def _asked(bed: BrokerBed, record: RunRecord) -> None:
    await until(lambda: str(record.attempt_id) in bed.stepping_aside)


def _says(service: GatewayService, record: RunRecord, attempt: int, *phases: str) -> None:
    """It is saved at its next round."""
    save = Save(attempt + 1, attempt, time.time(), "epoch 3")
    outcome = Outcome("preempted", values=Graph(b"saved"), ended_s=time.time(), save=save)
    for phase in phases:
        said = outcome if phase != "ended" else None
        service.lifecycle.hear(record, RunPhase(AttemptId(record.run, attempt), phase, time.time(), said))


def _places(record: RunRecord) -> dict[str, int]:
    assert record.lease is not None
    return {slot.node: slot.gpus for slot in record.lease.slots}


@pytest.mark.asyncio
async def test_a_gang_grows_only_where_it_asked_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=3, b=4)
    _label(bed, monkeypatch, a="new", b="old")
    async with bed.life() as service:
        service.leases.external = {"a": 1}
        record = await bed.running(service, ask=_elastic(4, 2, kind="new"), restartable=True)
        assert _places(record) == {"a": 2}
        _later(service, monkeypatch)
        service.lifecycle.queue._serve_now()
        assert record.state is RunState.RUNNING, "what is free is of the other kind"
        service.leases.external = {}
        service.lifecycle.queue._serve_now()
        assert record.view.notice is not None
        assert record.view.notice.reason == "to go on with 3 GPUs"


@pytest.mark.asyncio
async def test_a_run_is_moved_only_where_it_asked_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the pair one of two runs moves to the other's node, not to the one of another kind."""
    bed = BrokerBed(tmp_path, monkeypatch, old=1, a=2, b=2)
    _label(bed, monkeypatch, old="old", a="new", b="new")
    async with bed.life() as service:
        ask = ResourceAsk(gpus=1, labels={"kind": "new"})
        runs = [await bed.running(service, ask=ask, restartable=True) for _ in range(4)]
        of = {node: [run for run in runs if node in _places(run)] for node in ("a", "b")}
        for node in ("a", "b"):
            bed.end(service, of[node][0])
        await until(lambda: len(service.leases.all()) == 2)
        _later(service, monkeypatch)
        await bed.submitted(service, 2)
        (moved,) = [run for run in runs if run.view.notice is not None]
        assert moved.view.notice is not None
        assert moved.view.notice.action == "consolidate"
        assert "host-old" not in moved.view.notice.reason


@pytest.mark.asyncio
async def test_a_gang_that_gives_some_back_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else gets them in the moment in which it has none."""
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        record = await bed.running(service, ask=_elastic(4, 1), restartable=True, priority="low")
        urgent = await bed.submitted(service, 1, priority="high")
        other = await bed.submitted(service, 3)
        await _asked(bed, record)
        _says(service, record, 0, "ended", "released")
        await until(lambda: urgent.accepted)
        assert record.state is RunState.PERSISTING
        assert other.state is RunState.QUEUED
        _says(service, record, 0, "final")
        await until(lambda: record.accepted)
        assert _places(record) == {"a": 3}
        assert other.state is RunState.QUEUED


@pytest.mark.asyncio
async def test_a_gang_that_grows_goes_on_with_what_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody who comes while it is preempted gets what it had or is to get."""
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        blocks = await bed.running(service, 1)
        record = await bed.running(service, ask=_elastic(4, 2), restartable=True)
        assert _places(record) == {"a": 3}
        bed.end(service, blocks)
        await until(lambda: len(service.leases.all()) == 1)
        _later(service, monkeypatch)
        service.lifecycle.queue._serve_now()
        await _asked(bed, record)
        others = [await bed.submitted(service, gpus) for gpus in (1, 3)]
        _says(service, record, 0, "ended", "released")
        await until(lambda: record.state is RunState.PERSISTING)
        service.lifecycle.queue._serve_now()
        assert [other.state for other in others] == [RunState.QUEUED] * 2
        _says(service, record, 0, "final")
        await until(lambda: record.accepted)
        assert _places(record) == {"a": 4}
