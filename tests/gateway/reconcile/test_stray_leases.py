"""What nobody thought of is found and mended: leases, runs, processes and placement groups that belong to nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker_bed import BrokerBed, PretendedAgent, until

from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.reconcile.stray_leases import Reconciliation
from jupyter_gpu_release.gateway.runs.machine import Lost
from jupyter_gpu_release.gateway.runs.sessions import Session
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.host import background
from jupyter_gpu_release.protocol.node import AttemptId
from jupyter_gpu_release.protocol.states import LeaseState, RunState
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.scheduling.decisions import Slot


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    made = BrokerBed(tmp_path, monkeypatch, a=4)
    made.settings["reconcile_interval_s"] = 0.02
    return made


async def _reconcile(service: GatewayService, condition: Any) -> None:
    reconciliation = Reconciliation(service)
    async with asyncio.timeout(30):
        while not condition():
            await reconciliation.compare_once()
            await asyncio.sleep(0.005)


@pytest.mark.asyncio
async def test_what_is_in_order_is_left_alone(bed: BrokerBed, caplog: pytest.LogCaptureFixture) -> None:
    async with bed.life() as service:
        record, waits = await bed.running(service, 3), await bed.submitted(service, 2)
        looks = iter(range(60))
        await _reconcile(service, lambda: next(looks, None) is None)
        assert (record.state, waits.state) == (RunState.RUNNING, RunState.QUEUED)
        assert "reconciliation" not in caplog.text


@pytest.mark.asyncio
async def test_a_lease_of_nobody_is_given_back(bed: BrokerBed, caplog: pytest.LogCaptureFixture) -> None:
    async with bed.life() as service:
        lease = service.leases.add(Lease("jgr-test-nobody", AttemptId("20260101-000000-00000000", 0), (Slot("a", 4),)))
        service.ray_leases.begin_making(lease, "/tmp")
        await service.ray_leases.finish(lease)
        waits = await bed.submitted(service)
        await _reconcile(service, lambda: waits.lease is not None)
        assert lease.state is LeaseState.GONE
        assert "lease jgr-test-nobody has no living run" in caplog.text


@pytest.mark.faults_of_ours
@pytest.mark.asyncio
async def test_a_run_whose_end_has_failed_is_ended(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with bed.life() as service:
        record = await bed.running(service, 4)
        with monkeypatch.context() as patch:
            patch.setattr(service.lifecycle, "_hand_over", lambda *_: 1 / 0)
            patch.setattr(background, "_AGAIN_S", 0.001)
            bed.end(service, record)
            await until(lambda: caplog.text.count("a background task failed") > 1)
            assert record.state is RunState.RELEASING
        await until(lambda: record.state is RunState.SUCCEEDED and not service.leases.all())
        assert not bed.ray.groups


@pytest.mark.asyncio
async def test_an_end_that_nobody_was_told_of_is_taken_in_but_not_ahead_of_its_own_word(bed: BrokerBed) -> None:
    """The word may be on its way, behind the run's last output."""
    async with bed.life() as service:
        record = await bed.running(service, 4)
        bed.agents["a"].phases[record.run] = "ended"
        reconciliation = Reconciliation(service)
        for _ in range(2 * 5 - 1):
            await reconciliation.compare_once()
        assert record.state is RunState.RUNNING
        await reconciliation.compare_once()
        assert record.state is RunState.RELEASING


@pytest.mark.asyncio
async def test_a_run_that_its_node_does_not_know_is_lost(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service, 4)
        bed.agents["a"].phases.clear()
        await _reconcile(service, lambda: record.state is RunState.LOST and not bed.ray.groups)
        assert "knows nothing of it any more" in record.view.reason


@pytest.mark.asyncio
async def test_a_process_of_a_run_that_is_over_and_a_group_of_nobody_go(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service)
        service.lifecycle.hear(record, Lost(record.attempt_id, "as if its node had been away"))
        stranger = bed.ray._placement_group(
            [{"GPU": 2.0}], name="jgr-test-stranger", bundle_label_selector=[{"ray.io/node-id": "a"}]
        )
        await _reconcile(service, lambda: bed.agents["a"].killed and not bed.ray.groups)
        assert bed.agents["a"].killed == [record.run]
        assert stranger.name not in bed.ray.names()


@pytest.mark.asyncio
async def test_silent_nodes_are_waited_for_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None answers before all have been asked."""
    asked = asyncio.Barrier(3)

    async def answer(_agent: PretendedAgent) -> bytes:
        await asked.wait()
        return encode([])

    async with BrokerBed(tmp_path, monkeypatch, a=1, b=1, c=1).life() as service:
        monkeypatch.setattr(PretendedAgent, "do_runs", answer)
        reconciliation = Reconciliation(service)
        async with asyncio.timeout(60):
            for _ in range(5):
                await reconciliation.compare_once()


@pytest.mark.asyncio
async def test_what_was_so_at_two_moments_was_not_so_all_the_time(bed: BrokerBed) -> None:
    mended: list[str] = []
    found: dict[str, Any] = {"a lease of nobody": lambda: mended.append("it")}
    async with bed.life() as service:
        reconciliation = Reconciliation(service)
        for now_s, finding in ((0.0, found), (1.0, {}), (1000.0, found)):
            reconciliation._mend(finding, now_s)
        assert not mended
        reconciliation._mend(found, 2000.0)
        assert mended == ["it"]


async def _look(reconciliation: Reconciliation, times: int) -> None:
    for _ in range(times):
        await reconciliation.compare_once()


@pytest.mark.asyncio
async def test_one_answer_of_a_node_ends_nothing(bed: BrokerBed) -> None:
    """Nodes are asked at each fifth look; what is missing twice in a row is lost."""
    async with bed.life() as service:
        record = await bed.running(service, 4)
        agent, reconciliation = bed.agents["a"], Reconciliation(service)
        for _ in range(2):
            phases = dict(agent.phases)
            agent.phases.clear()
            await _look(reconciliation, 5)
            agent.phases.update(phases)
            await _look(reconciliation, 5)
        assert record.state is RunState.RUNNING
        agent.phases.clear()
        await _look(reconciliation, 10)
        assert record.outcome is not None
        assert record.outcome.status == "lost"


@pytest.mark.asyncio
async def test_gpus_that_a_kernel_keeps_are_no_lease_of_nobody(
    bed: BrokerBed, caplog: pytest.LogCaptureFixture
) -> None:
    async with bed.life() as service:
        service.sessions._sessions["s"] = Session("s", "ann")
        record = await bed.running(service, 2, keep_s=600.0)
        bed.end(service, record)
        await until(lambda: service.leases.warm())
        looks = iter(range(60))
        await _reconcile(service, lambda: next(looks, None) is None)
        (lease,) = service.leases.all()
        assert lease.state is LeaseState.WARM
        assert "reconciliation" not in caplog.text


@pytest.mark.asyncio
async def test_a_node_forgets_what_is_over_and_keeps_results_that_are_not(bed: BrokerBed) -> None:
    async with bed.life() as service:
        over, waits = await bed.running(service), await bed.running(service)
        for phase in ("ended", "released"):
            bed.say(service, waits, phase)
        bed.end(service, over)
        await until(lambda: over.state.is_terminal and waits.state is RunState.PERSISTING)
        await bed.in_ledger(service)
        agent = bed.agents["a"]
        agent.phases[over.run] = "final"  # it has not heard that it is committed
        await _look(Reconciliation(service), 5)
        assert agent.phases == {waits.run: "released"}
        assert agent.killed == []


@pytest.mark.asyncio
async def test_results_that_their_node_does_not_know_any_more_are_lost(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service)
        for phase in ("ended", "released"):
            bed.say(service, record, phase)
        await until(lambda: record.state is RunState.PERSISTING)
        bed.agents["a"].phases.clear()
        await _reconcile(service, lambda: record.state.is_terminal)
        assert record.view.outcome is not None
