"""Ray frees a run's GPUs while its process ends; they are nobody else's before that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bed import BrokerBed, until

from jupyter_gpu_release.protocol.states import LeaseState, RunState


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=4)


@pytest.mark.asyncio
async def test_gpus_that_ray_has_freed_are_granted_when_the_process_is_gone(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service, 2)
        bed.say(service, record, "ended")
        bed.say(service, record, "leaving")
        await until(lambda: bed.ray.names() == [])
        lease = record.lease
        assert lease is not None
        assert lease.returning is not None
        await until(lease.returning.done)
        waits = await bed.submitted(service, 4)
        service.lifecycle.queue.serve()
        assert waits.state is RunState.QUEUED
        assert record.state is RunState.RELEASING
        bed.say(service, record, "released")
        await until(lambda: waits.lease is not None and bed.ray.names() == [f"jgr-test-{waits.run}"])
        assert record.view.gone_at is not None


@pytest.mark.asyncio
async def test_a_run_that_waits_for_the_same_gpus_gets_them_as_they_are(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service, 4)
        waits = await bed.submitted(service, 4)
        bed.say(service, record, "ended")
        bed.say(service, record, "leaving")
        assert record.lease is not None
        assert record.lease.returning is None
        bed.say(service, record, "released")
        await until(lambda: waits.lease is not None)
        assert "remove_placement_group" not in bed.ray.asked


@pytest.mark.asyncio
async def test_a_gateway_that_is_restarted_meanwhile_grants_them_when_the_process_is_gone(bed: BrokerBed) -> None:
    async with bed.life() as first:
        record = await bed.running(first, 4)
        run = record.run
        bed.say(first, record, "ended")
        bed.say(first, record, "leaving")
        await until(lambda: bed.ray.names() == [])
        await first.committed(record)
    async with bed.life() as second:
        record = second.runs.get(run)
        waits = await bed.submitted(second, 4)
        assert record.state is RunState.RELEASING
        assert [lease.state for lease in second.leases.all()] == [LeaseState.RELEASING]
        assert waits.state is RunState.QUEUED
        bed.end(second, record)
        await until(lambda: waits.lease is not None and record.state is RunState.SUCCEEDED)
