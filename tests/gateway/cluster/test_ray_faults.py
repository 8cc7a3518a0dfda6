"""Ray fails, is silent, or the gateway dies twice: no lease is lost, none is leaked, no GPU is given twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import ray
from broker_bed import BrokerBed, until

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster import ray_calls
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.dispatch import lifecycle
from jupyter_gpu_release.protocol.states import RunState


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=4)


@pytest.mark.slow("two restarts of Ray's own part")
@pytest.mark.asyncio
async def test_two_restarts_keep_the_lease_of_a_run_that_lives(bed: BrokerBed) -> None:
    """The first gateway dies between the grant and the order; the run is granted again, as a newer attempt."""
    bed.agents["a"].faults["start"] = asyncio.CancelledError()  # the order never arrives
    async with bed.life() as first:
        record = await bed.submitted(first, 2)
        await until(lambda: record.state is RunState.STARTING and record.lease is not None and record.lease.gpu_ids)
        run = record.run
        await bed.in_ledger(first)
    bed.agents["a"].faults.clear()
    bed.ray.faults["available_resources_per_node"] = ray.exceptions.RaySystemError("slow to report")
    bed.ray.asked.clear()
    async with bed.life() as second:
        record = second.runs.get(run)
        await until(lambda: bed.ray.asked.count("available_resources_per_node") > 10)
        bed.ray.faults.clear()
        await until(lambda: f"{run}.1" in bed.agents["a"].phases)
        bed.say(second, record, "running")
        await bed.in_ledger(second)
    async with bed.life() as third:
        record = third.runs.get(run)
        assert record.state is RunState.RUNNING
        assert record.lease is not None
        other = await bed.submitted(third, 4)
        assert bed.ray.names() == [f"jgr-test-{run}.1"]
        assert other.state is RunState.QUEUED
        bed.end(third, record)
        await until(lambda: other.lease is not None)


@pytest.mark.asyncio
@pytest.mark.parametrize("function", ["remove_placement_group", "available_resources_per_node"])
async def test_a_ray_that_fails_at_a_release_leaks_no_lease(bed: BrokerBed, function: str) -> None:
    async with bed.life() as service:
        record, waits = await bed.running(service), await bed.submitted(service, 4)
        bed.ray.faults[function] = ray.exceptions.RaySystemError("the control store is away")
        bed.end(service, record)
        await until(lambda: bed.ray.asked.count(function) > 2)
        assert not waits.lease
        bed.ray.faults.clear()
        await until(lambda: record.state is RunState.SUCCEEDED and bed.ray.names() == [f"jgr-test-{waits.run}"])


@pytest.mark.asyncio
async def test_a_silent_ray_stops_neither_the_gateway_nor_a_cell(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FREE_S", 0.2)
    monkeypatch.setattr(ray_calls, "LIMIT_S", 0.1)
    async with bed.life() as service:
        record, waits = await bed.running(service), await bed.submitted(service, 4)
        bed.ray.answers.clear()
        bed.end(service, record)
        await until(lambda: record.state is RunState.SUCCEEDED)
        assert "Ray has not reported its GPUs free" in record.outcome.notes[-1]
        assert record.view.gone_at is None
        assert waits.state is RunState.QUEUED  # they are not given to anybody before Ray has said so
        bed.ray.answers.set()
        await until(lambda: waits.lease is not None)


@pytest.mark.asyncio
async def test_a_run_that_holds_no_lease_after_a_restart_is_ended(bed: BrokerBed) -> None:
    """Whatever became of the lease: its GPUs could be given to somebody else."""
    async with bed.life() as first:
        record = await bed.running(first)
        await bed.in_ledger(first)
    bed.ray.groups.clear()
    async with bed.life() as second:
        await until(lambda: second.runs.get(record.run).state is RunState.LOST)
        assert bed.agents["a"].killed == [record.run]


@pytest.mark.asyncio
async def test_a_lease_of_which_ray_never_told_the_gpus_is_given_back_and_not_handed_on(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node had heard of them, so the cell ran; the next run gets a group of its own, and none is left behind."""
    async with bed.life() as service:
        finish, ended = service.ray_leases.finish, asyncio.Event()

        async def fails(lease: Lease) -> None:
            await asyncio.shield(lease.making)
            await ended.wait()
            raise ClusterError("Ray is silent")

        monkeypatch.setattr(service.ray_leases, "finish", fails)
        one, agent = await bed.submitted(service, 4), bed.agents["a"]
        await until(lambda: one.run in agent.orders)
        agent.phases[one.run] = "starting"
        two = await bed.submitted(service, 4)
        for phase in ("running", "ended", "released"):
            bed.say(service, one, phase)
        monkeypatch.setattr(service.ray_leases, "finish", finish)
        ended.set()
        await until(lambda: two.accepted and two.lease.gpu_ids)
        assert bed.ray.names() == [f"jgr-test-{two.run}"]
