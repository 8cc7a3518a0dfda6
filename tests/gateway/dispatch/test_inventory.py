"""The scheduler is in step with the tables, also of a gateway that was restarted."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bed import ANN, BrokerBed, until

from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.scheduling.state import State
from jupyter_gpu_release.scheduling.workload import GPU, RankState


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=4)


@pytest.mark.asyncio
async def test_a_gateway_that_restarts_knows_who_waits_since_when_and_what_was_used(bed: BrokerBed) -> None:
    async with bed.life() as first:
        over = await bed.running(first, 4, notebook="n.ipynb", cell="c")
        bed.end(first, over)
        await until(lambda: over.state is RunState.SUCCEEDED)
        await bed.in_ledger(first)
        held = await bed.running(first, 3)
        waiting = [await bed.submitted(first, 4) for _ in range(3)]
        await bed.in_ledger(first)
    async with bed.life() as second:
        inventory = second.lifecycle.queue.inventory
        assert [record.run for record in second.lifecycle.queue.waiting()] == [record.run for record in waiting]
        state = inventory.in_step().state
        ages = [state.jobs[record.run].run.submitted_at for record in waiting]
        assert ages == [record.view.submitted_at for record in waiting]
        assert state.jobs[held.run].states == [RankState.RUNNING]
        assert inventory.run_times.has_started(held.run)
        assert inventory.run_times.median_factor() >= 1.0
        assert state.user_usage["default", "ann"] > 0.0
        again = await bed.submitted(second, 4, notebook="n.ipynb", cell="c")
        run = inventory.in_step().state.jobs[again.run].run
        assert inventory.run_times.expected_s(run, run.submitted_at) < 600.0  # nobody knew anything before: an hour


@pytest.mark.asyncio
async def test_all_that_is_held_or_waits_is_in_the_snapshot(bed: BrokerBed) -> None:
    async with bed.life() as service:
        held, waits = await bed.running(service, 2), await bed.submitted(service, 4)
        service.leases.external = {"a": 1}
        found = service.lifecycle.queue.inventory.snapshot()
        assert [(node.name, node.gpus) for node in found.nodes] == [("a", 4 * GPU)]
        assert found.outside == {"a": (GPU, "")}
        assert {run.run: (run.gpus, run.ranks[0].state) for run in found.runs} == {
            held.run: (2 * GPU, RankState.RUNNING),
            waits.run: (4 * GPU, RankState.QUEUED),
        }
        bed.end(service, held)
        await until(lambda: held.state is RunState.SUCCEEDED)
        assert held.run not in service.lifecycle.queue.inventory.in_step().state.jobs
        assert not service.lifecycle.queue.inventory.run_times.knows(held.run)


@pytest.mark.asyncio
async def test_a_snapshot_has_what_was_used_of_late_and_the_nodes_that_are_away(bed: BrokerBed) -> None:
    async with bed.life() as service:
        inventory = service.lifecycle.queue.inventory
        over = await bed.running(service, 4)
        inventory.in_step()
        bed.end(service, over)
        await until(lambda: over.state is RunState.SUCCEEDED)
        service.nodes.note_drained({"host-a": "new disks"})
        found = inventory.snapshot()
        assert found.user_usage["default", "ann"] > 0.0
        assert found.queue_usage["default"] == pytest.approx(found.user_usage["default", "ann"])
        state = State(found)
        assert state.nodes.away == inventory.scheduler.state.nodes.away == {"a": "new disks"}
        assert state.nodes.outside == inventory.scheduler.state.nodes.outside


@pytest.mark.asyncio
async def test_a_run_that_changes_hands_while_it_waits_is_its_new_kernels(bed: BrokerBed) -> None:
    async with bed.life() as service:
        await bed.running(service, 4)
        waits = await bed.submitted(service, 4, session="gone")
        scheduler = service.lifecycle.queue.inventory.in_step()
        service.adopt(ANN, "next", waits.run)
        assert service.lifecycle.queue.inventory.in_step()._askers[waits.run].session == "next"
        await service.detach(ANN, waits.run)
        assert service.lifecycle.queue.inventory.in_step()._askers[waits.run].detached
        assert service.lifecycle.queue.inventory.in_step() is scheduler


@pytest.mark.asyncio
async def test_a_run_whose_kernel_is_gone_is_taken_over_by_its_user_alone(bed: BrokerBed) -> None:
    async with bed.life() as service:
        run = await bed.running(service, session="gone")
        service.adopt(Caller("root", "admin"), "an admin's", run.run)  # who may read it
        assert run.view.session == "gone"
        service.adopt(ANN, "next", run.run)
        assert run.view.session == "next"
        await service.detach(ANN, run.run)
        before = run.view
        service.adopt(ANN, "another", run.run)
        assert run.view == before
