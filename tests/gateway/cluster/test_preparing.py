"""A run waits for its libraries before it is queued: whoever needs none gets the GPUs meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bed import ANN, BrokerBed, until

from jupyter_gpu_release.gateway import service as gateway_service
from jupyter_gpu_release.gateway.runs.machine import Cancel
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.node import PrepareOrder, RunPhase
from jupyter_gpu_release.protocol.runs import ImportedModule, Outcome, ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import RunState, new_run_id
from jupyter_gpu_release.protocol.wire import encode

_NEEDS = ["jax.numpy", "plotly.express"]


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    bed = BrokerBed(tmp_path, monkeypatch, a=1, old=0)
    bed.agents["a"].max_prepared = 4  # the other one is from before an upgrade
    monkeypatch.setattr(gateway_service, "_QUIET_S", 0.0)
    return bed


async def _submitted(service: GatewayService, **facts: object) -> RunRecord:
    request = RunRequest(new_run_id(), "s", ResourceAsk(), encode(CellPayload(source="x")), **facts)  # type: ignore[arg-type]
    record = await service.submit(ANN, request)
    await service.committed(record)
    return record


@pytest.mark.asyncio
async def test_no_gpu_is_held_while_libraries_are_imported(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await _submitted(service, prepare=_NEEDS)
        await until(lambda: bed.agents["a"].prepares)
        assert bed.agents["a"].prepares == [PrepareOrder(_NEEDS, "ann", "s")]
        assert not bed.agents["old"].prepares
        await until(lambda: record.view.reason)
        assert record.view.reason == "no GPU is held yet: the node imports what the cell needs (jax, plotly)"
        assert record.state is RunState.QUEUED
        other = await bed.running(service)
        assert other.state is RunState.RUNNING, "the only GPU is free for who needs nothing"
        bed.end(service, other)
        bed.agents["a"].has_imported.set()
        await until(lambda: record.accepted)
        assert bed.agents["a"].orders[record.run].needs == _NEEDS
        assert bed.agents["a"].orders[record.run].user == "ann"


@pytest.mark.asyncio
async def test_what_a_node_has_is_not_asked_again_until_it_lost_something(bed: BrokerBed) -> None:
    agent = bed.agents["a"]
    agent.has_imported.set()
    async with bed.life() as service:
        first = await bed.running(service, prepare=_NEEDS)
        await bed.submitted(service, prepare=_NEEDS[:1])
        await bed.submitted(service)
        assert len(agent.prepares) == 1
        imported = [ImportedModule("found_only_there", 1.0, True)]
        outcome = Outcome("ok", ended_s=1.0, imported=imported)
        service.lifecycle.hear(first, RunPhase(first.attempt_id, "released", 1.0, outcome))
        await bed.submitted(service)
        await bed.submitted(service, prepare=_NEEDS)
        assert len(agent.prepares) == 1, "nobody waits for what another cell had to import"
        node = service.nodes.find("a")
        assert node is not None
        agent.prepared_gone = 1
        node.info = agent.info()
        await bed.submitted(service, prepare=_NEEDS)
        await until(lambda: len(agent.prepares) == 2)
        await bed.submitted(service, prepare=["scipy"], fresh=True)
        assert len(agent.prepares) == 2, "a new interpreter has nothing imported"
        service.on_session_ended("s")
        await until(lambda: agent.ended_sessions == ["s"])


@pytest.mark.asyncio
async def test_a_run_that_is_cancelled_meanwhile_is_not_queued(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await _submitted(service, prepare=_NEEDS)
        await until(lambda: bed.agents["a"].prepares)
        service.lifecycle.hear(record, Cancel("interrupted", gives_up=False))
        assert record.state is RunState.CANCELLED
        bed.agents["a"].has_imported.set()
        assert (await bed.running(service)).state is RunState.RUNNING
        assert record.state is RunState.CANCELLED


@pytest.mark.asyncio
async def test_who_is_never_ready_is_not_waited_for(bed: BrokerBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_service, "_PREPARE_S", 0.05)
    async with bed.life() as service:
        record = await _submitted(service, prepare=_NEEDS)
        await until(lambda: record.accepted)
        bed.agents["a"].faults["prepare"] = OSError("no")
        bed.agents["a"].prepared_gone = 1
        other = await _submitted(service, prepare=_NEEDS)
        await until(lambda: other.view.position is not None)
