"""Views of a run on its way to its end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from broker_bed import BrokerBed, until

from jupyter_gpu_release.gateway.runs.machine import Cancel
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
