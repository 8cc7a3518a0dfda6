"""Views of a run on its way to its end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import ray
from broker_bed import BrokerBed, until

from jupyter_gpu_release.gateway.runs.machine import Cancel, Forgotten, Heard
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import RunPhase
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome
from jupyter_gpu_release.protocol.states import RunState


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=1)


@pytest.mark.asyncio
async def test_who_cancelled_a_run_is_known_as_soon_as_its_outcome(bed: BrokerBed) -> None:
    """Cells show the outcome then, and are not told again when the run is final."""
    outcome = Outcome("interrupted", error=ErrorInfo("KeyboardInterrupt", ""), ended_s=time.time())
    async with bed.life() as service:
        record = await bed.running(service)
        service.lifecycle.hear(record, Cancel("cancelled by bob"))
        for phase in ("ended", "released"):
            service.lifecycle.hear(record, RunPhase(record.attempt_id, phase, time.time(), outcome))
        await until(lambda: record.view.outcome is not None)
        assert (record.state, record.view.reason) == (RunState.PERSISTING, "cancelled by bob")
        service.lifecycle.hear(record, RunPhase(record.attempt_id, "final", time.time(), outcome))
        assert (record.view.state, record.view.reason) == ("cancelled", "cancelled by bob")


@pytest.mark.asyncio
async def test_a_signal_that_its_node_did_not_hear_is_sent_again_when_the_node_answers(bed: BrokerBed) -> None:
    agent = bed.agents["a"]
    async with bed.life() as service:
        record = await bed.running(service)
        agent.faults["signal"] = ray.exceptions.RayError("no answer")
        service.lifecycle.hear(record, Cancel("cancelled by bob", kill=True))
        await until(lambda: record.cancellation.unsent == "kill")
        del agent.faults["signal"]
        service.lifecycle.hear(record, Heard("a"))
        await until(lambda: agent.killed == [str(record.attempt_id)])
        assert record.cancellation.unsent == ""


@pytest.mark.asyncio
@pytest.mark.parametrize("answers", [True, False])
async def test_results_that_a_restarted_agent_has_not_written_are_written_by_the_next_or_lost(
    bed: BrokerBed, answers: bool
) -> None:
    agent, outcome = bed.agents["a"], Outcome("ok", values=Graph(stream=b"values"), ended_s=time.time())
    async with bed.life() as service:
        record = await bed.running(service)
        for phase in ("ended", "released"):
            service.lifecycle.hear(record, RunPhase(record.attempt_id, phase, time.time(), outcome))
        await until(lambda: record.state is RunState.PERSISTING)
        if not answers:
            agent.faults["keep_results"] = ray.exceptions.RayError("no answer")
        service.lifecycle.hear(record, Forgotten(record.attempt_id, "", "its agent was restarted", node="a"))
        await until(lambda: agent.kept or record.state is RunState.LOST)
        if answers:
            folder, kept = agent.kept[str(record.attempt_id)]
            assert (Path(folder), kept.values) == (bed.folder / "store" / "runs" / record.run, outcome.values)
            assert record.state is RunState.PERSISTING
        else:
            assert record.view.reason.endswith("are lost: its agent was restarted")
