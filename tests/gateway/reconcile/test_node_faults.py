"""Nodes that fall silent, come back, die with a queue, or lack the store: who is told, who waits, who goes on."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ray
from broker_bed import BrokerBed, ReportedTo, look_until, until

from jupyter_gpu_release.gateway.cluster import agent_client
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.dispatch import gangs
from jupyter_gpu_release.gateway.reconcile import node_liveness, recovery
from jupyter_gpu_release.gateway.runs import machine
from jupyter_gpu_release.gateway.runs.machine import Cancel
from jupyter_gpu_release.gateway.runs.record import Persisting, RunRecord, RunSnapshot
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.presentation.run_display import describe_run
from jupyter_gpu_release.protocol.node import NodeReport, RunPhase, RunStays, RunUnbegun
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.protocol.wire import pack


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    monkeypatch.setattr(node_liveness, "_HELLO_S", 0.1)
    return BrokerBed(tmp_path, monkeypatch, a=1, b=4)


@pytest.mark.asyncio
async def test_a_hiccup_of_the_network_is_told_and_costs_no_run(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a clock that is set meanwhile."""
    bed.settings["node_grace_s"] = 3600.0
    async with bed.life() as service:
        record = await bed.running(service, 4)
        bed.agents["b"].silent = True
        await look_until(service, lambda: record.view.reason)
        assert "host-b does not answer: the cell is lost if it does not within 3600 s" in describe_run(record.view)
        waits = await bed.submitted(service, 2)
        assert (
            waits.view.reason == "next in the queue: the node host-b does not answer, or its agent is being restarted"
        )
        week_later_s = time.time() + 604_800.0
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: week_later_s)
            await node_liveness.refresh_nodes(service)
        assert not service.nodes.find("b").is_lost
        bed.agents["b"].silent = False
        await look_until(service, lambda: not record.view.reason)
        assert record.state is RunState.RUNNING
        bed.end(service, record)
        await until(lambda: record.state is RunState.SUCCEEDED and waits.lease is not None)


@pytest.mark.asyncio
@pytest.mark.parametrize("is_new", [False, True])
async def test_a_gateway_that_restarts_in_a_hiccup_waits_for_the_node(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """A new agent on it does not know the run any more."""
    async with bed.life() as first:
        record = await bed.running(first, 4)
        await bed.in_ledger(first)
    monkeypatch.setattr(agent_client, "CALL_S", 0.05)
    monkeypatch.setattr(recovery, "_AGENT_PATIENCE_S", 0.1)
    agent = bed.agents["b"]
    agent.silent = True
    async with bed.life() as second:
        record = second.runs.get(record.run)
        assert record.state is RunState.RUNNING
        await look_until(second, lambda: "does not answer" in record.view.reason)
        agent.silent = False
        if is_new:
            bed.next_agent("b")
            await look_until(second, lambda: record.state is RunState.LOST)
        else:
            await look_until(second, lambda: not record.view.reason)
            bed.end(second, record)
            await until(lambda: record.state is RunState.SUCCEEDED)
        await look_until(second, lambda: second.nodes.find("b").reachable and not bed.ray.groups)


@pytest.mark.asyncio
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("in_ledger", ["starting", "queued"])
async def test_gateway_and_agent_die_before_the_ledger_has_it_that_a_cell_runs(
    bed: BrokerBed, begun: bool, in_ledger: str
) -> None:
    """That is committed a little later than it is told; the mark on the node says whether the cell has begun."""
    async with bed.life() as first:
        record = await bed.running(first, 4)
        assert record.state is RunState.RUNNING
        first.ledger._later.pop(record.run)
        if in_ledger == "queued":
            view = msgspec.structs.replace(record.view, state="queued")
            first.ledger.write(partial(database.update_run, view=view, outcome=None))
    bed.next_agent("b")
    if not begun:
        bed.agents["b"].marks.clear()
    async with bed.life() as second:
        again = second.runs.get(record.run)
        if begun:
            await until(lambda: again.state is RunState.LOST and not bed.ray.groups)
        else:
            await until(lambda: again.state is RunState.STARTING and str(again.attempt_id) in bed.agents["b"].phases)


_GANG = ResourceAsk(gpus=2, ranks=2, nodes=2)


async def _starting(bed: BrokerBed, service: GatewayService) -> RunRecord:
    """A gang that both nodes have accepted, and that has not begun."""
    record = await bed.submitted(service, ask=_GANG)
    await until(lambda: record.accepted)
    return record


@pytest.mark.asyncio
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("gateway_too", [True, False])
async def test_the_leader_of_a_gang_dies(bed: BrokerBed, begun: bool, gateway_too: bool) -> None:
    """One that has not begun begins after all, when the nodes that lent ranks to it have them back."""
    async with bed.life() as first:
        record = await _starting(bed, first)
        leader, lender = (bed.agents[slot.node] for slot in record.lease.slots)
        assert lender.lent == {record.run}
        if begun:
            leader.marks.add(record.run)  # nobody heard of it yet
        bed.next_agent(leader.node)
        if not gateway_too:
            await look_until(first, lambda: record.state is RunState.LOST or record.snapshot.put_back)
            await _is_judged(bed, first, record, begun)
    if gateway_too:
        async with bed.life() as second:
            await _is_judged(bed, second, second.runs.get(record.run), begun)


async def _is_judged(bed: BrokerBed, service: GatewayService, record: RunRecord, begun: bool) -> None:
    if begun:
        await until(lambda: record.state is RunState.LOST and not bed.ray.groups)
        assert not any(agent.lent for agent in bed.agents.values())
    else:
        await look_until(service, lambda: record.state is RunState.STARTING and record.accepted)
        leader, lender = (bed.agents[slot.node] for slot in record.lease.slots)
        assert (str(record.attempt_id) in leader.phases, lender.lent) == (True, {str(record.attempt_id)})
        assert len(bed.ray.groups) == 1


@pytest.mark.asyncio
async def test_a_new_agent_that_is_noticed_twice_at_a_time_is_taken_up_once(bed: BrokerBed) -> None:
    """By its own word and by the look at nodes: who is second must not lose what the first has put back."""
    async with bed.life() as service:
        record = await bed.submitted(service, 4)
        await until(lambda: record.accepted)
        agent = bed.agents["b"]
        agent.life = "second"
        agent.phases.clear()
        await asyncio.gather(*(node_liveness.on_node_up(service, agent.info()) for _ in range(2)))
        await until(lambda: str(record.attempt_id) in agent.phases)
        assert record.state is RunState.STARTING


@pytest.mark.asyncio
async def test_a_gang_that_its_leader_has_forgotten_begins_anew_and_not_for_ever(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await _starting(bed, service)
        for number in range(1, 4):
            bed.agents[record.lease.slots[0].node].phases.clear()
            service.lifecycle.hear(record, RunUnbegun(record.attempt_id, "ranks on host-b ended before the gang began"))
            await until(lambda n=number: record.snapshot.put_back == n and record.accepted)
        bed.agents[record.lease.slots[0].node].phases.clear()
        service.lifecycle.hear(record, RunUnbegun(record.attempt_id, "ranks on host-b ended before the gang began"))
        await until(lambda: record.state is RunState.LOST and not bed.ray.groups)
        assert record.view.reason == "ranks on host-b ended before the gang began"


@pytest.mark.asyncio
async def test_a_leader_hears_that_a_lending_agent_died(bed: BrokerBed) -> None:
    """What it lent may not have reached the leader yet, so that no line's end tells it."""
    async with bed.life() as service:
        record = await _starting(bed, service)
        leader, lender = (bed.agents[slot.node] for slot in record.lease.slots)
        bed.next_agent(lender.node)
        await look_until(service, lambda: leader.lost_members)
        assert leader.lost_members == [(record.run, lender.node)]


@pytest.mark.asyncio
async def test_a_gateway_that_restarts_starts_a_gang_anew_that_has_not_begun(bed: BrokerBed) -> None:
    """It may have died between the orders for the leader and for the others."""
    async with bed.life() as first:
        record = await _starting(bed, first)
        leader, lender = (bed.agents[slot.node] for slot in record.lease.slots)
        lender.lent.clear()
    async with bed.life() as second:
        again = second.runs.get(record.run)
        await look_until(second, lambda: again.state is RunState.STARTING and again.accepted)
        begun = str(again.attempt_id)
        assert (begun in leader.phases, lender.lent) == (True, {begun})


@pytest.mark.asyncio
async def test_an_interrupt_in_a_hiccup_is_heard_when_that_is_over(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_client, "CALL_S", 0.05)
    async with bed.life() as service:
        record = await bed.running(service, 4)
        bed.agents["b"].silent = True
        await look_until(service, lambda: record.view.reason)
        service.lifecycle.hear(record, Cancel("■, twice", True))
        assert bed.agents["b"].killed == []
        bed.agents["b"].silent = False
        await look_until(service, lambda: bed.agents["b"].killed == [record.run])


@pytest.mark.asyncio
async def test_a_node_that_loses_its_power_is_given_up_after_the_grace_and_ends_its_ranks_before_it_is_back(
    bed: BrokerBed,
) -> None:
    """Ray takes it for alive all the while. Others go before what waits for it."""
    bed.settings["node_grace_s"] = 0.3
    async with bed.life() as service:
        record, waits = await bed.running(service, 4), await bed.submitted(service, 3)
        behind = await bed.submitted(service, 1, ask=ResourceAsk(gpus=0))
        bed.agents["b"].silent = True
        await look_until(service, lambda: record.state is RunState.LOST)
        assert record.view.reason == "the node host-b has not answered for 0.3 s"
        assert service.leases.of_run(record.run) is None
        await look_until(service, lambda: waits.view.reason.startswith("waits for a node that fits"))
        assert behind.lease is not None
        bed.agents["b"].silent = False
        assert record.run in bed.agents["b"].phases  # it went on there
        await look_until(service, lambda: waits.lease is not None)
        assert bed.agents["b"].killed == [record.run]


@pytest.mark.asyncio
async def test_results_on_their_way_outlive_their_nodes_silence(bed: BrokerBed) -> None:
    """They hold no GPU, and the node may be back with them."""
    bed.settings["node_grace_s"] = 0.3
    async with bed.life() as service:
        made = await bed.running(service, 4)
        for phase in ("ended", "released"):
            bed.say(service, made, phase)
        runs = await bed.running(service, 4)
        bed.agents["b"].silent = True
        await look_until(service, lambda: runs.state is RunState.LOST)
        assert made.state is RunState.PERSISTING
        bed.agents["b"].silent = False
        bed.say(service, made, "final")
        await look_until(service, lambda: made.state is RunState.SUCCEEDED)


@pytest.mark.asyncio
async def test_a_node_dies_with_a_queue_behind_it(bed: BrokerBed) -> None:
    async with bed.life() as service:
        first, record = await bed.running(service, 1), await bed.running(service, 4)
        large = await bed.submitted(service, 4)
        small = await bed.submitted(service, 1)
        assert (large.view.position, small.view.position) == (2, 1)  # the less work, the sooner
        bed.ray.dead.add("b")
        bed.agents["b"].silent = True
        await look_until(
            service,
            lambda: record.state is RunState.LOST and large.view.reason.startswith("waits for a node that fits"),
        )
        bed.end(service, first)
        await until(lambda: small.lease is not None)
        assert small.lease.slots[0].node == "a"
        assert large.view.reason.startswith("waits for a node that fits, others may go first: asks for 4 GPUs")


@pytest.mark.asyncio
async def test_a_node_without_the_store_takes_no_runs_and_says_why(bed: BrokerBed) -> None:
    async with bed.life() as service:
        bed.agents["b"].trouble = "the store /team is not there: is it mounted?"
        await look_until(service, lambda: service.problems())
        assert service.problems() == ["host-b: the store /team is not there: is it mounted?"]
        large, small = await bed.submitted(service, 4), await bed.running(service, 1)
        assert small.lease.slots[0].node == "a"
        assert large.view.reason.endswith("first: host-b: the store /team is not there: is it mounted?")
        bed.agents["b"].trouble = ""
        await look_until(service, lambda: large.lease is not None)


@pytest.mark.asyncio
async def test_a_gateway_that_comes_back_knows_how_far_a_run_was(bed: BrokerBed) -> None:
    """Results that were released are not called lost when nobody is left who can tell of them again."""
    async with bed.life() as first:
        record = await bed.running(first, 4)
        for phase in ("ended", "released"):
            bed.say(first, record, phase)
        await until(lambda: record.state is RunState.PERSISTING)
        await bed.in_ledger(first)
    bed.next_agent("b")
    async with bed.life() as second:
        again = second.runs.get(record.run)
        assert isinstance(again.stage, Persisting)


@pytest.mark.asyncio
@pytest.mark.parametrize("phase", ["running", "ended"])
async def test_a_start_that_fails_is_cancelled_while_its_node_begins_it_after_all(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """The late word comes while the lease is given back: the run ends all the same, and as cancelled."""
    monkeypatch.setattr(gangs, "START_S", 0.05)
    async with bed.life() as service:
        free, look, failed = service.lifecycle._free_in_time, service.lifecycle._may_have_begun, asyncio.Event()

        async def late(record: RunRecord, *lease: Any) -> bool:
            bed.say(service, record, phase)
            return await free(record, *lease)

        async def looked(*of_start: Any) -> bool:
            failed.set()
            return await look(*of_start)

        monkeypatch.setattr(service.lifecycle, "_free_in_time", late)
        monkeypatch.setattr(service.lifecycle, "_may_have_begun", looked)
        bed.agents["b"].faults["start"] = ray.exceptions.RayTaskError("start", "its disk is slow", OSError("slow"))
        bed.agents["b"].faults["has_begun"] = ray.exceptions.GetTimeoutError("slow")
        record = await bed.submitted(service, 4)
        await asyncio.wait_for(failed.wait(), 30)
        service.lifecycle.hear(record, Cancel("interrupted", gives_up=False))
        await until(lambda: record.state is RunState.CANCELLED and not service.leases.all() and not bed.ray.groups)


@pytest.mark.asyncio
async def test_a_run_is_cancelled_while_its_gateway_recovers(bed: BrokerBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that comes back tells at once what it could not tell before. The ledger does not know of the start."""
    async with bed.life() as first:
        run = (record := await bed.running(first, 4)).run
        first.ledger._later.pop(run)
        view = msgspec.structs.replace(record.view, state="queued")
        await first.ledger.write(partial(database.update_run, view=view, outcome=None))
    ask = recovery._ask_agents

    async def meanwhile(service: GatewayService) -> Any:
        service.lifecycle.hear(service.runs.get(run), Cancel("interrupted", gives_up=False))
        return await ask(service)

    monkeypatch.setattr(recovery, "_ask_agents", meanwhile)
    async with bed.life() as second:
        assert second.runs.get(run).state is RunState.CANCELLED
        await until(lambda: not second.leases.all() and not bed.ray.groups)
        assert bed.agents["b"].killed == [run]


@pytest.mark.asyncio
async def test_a_message_that_cannot_be_taken_in_holds_back_no_other(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its node would say it again for ever, and nothing after it."""

    step = machine.step

    def fail(run: RunSnapshot, event: machine.Event, now_s: float) -> Any:
        if isinstance(event, RunStays):
            raise RuntimeError("a defect of ours")
        return step(run, event, now_s)

    async with bed.life() as service:
        record = await bed.running(service, 4)
        monkeypatch.setattr(machine, "step", fail)
        stays = RunStays(record.attempt_id, "the store is full")
        outcome = Outcome("ok", started_s=1.0, ended_s=2.0)
        ends = [RunPhase(record.attempt_id, phase, 2.0, outcome) for phase in ("ended", "released", "final")]
        await ReportedTo(service).node_report(pack(NodeReport("b", "first", [stays, *ends])))
        await until(lambda: record.state is RunState.SUCCEEDED)
    assert "a RunStays of its node could not be taken in" in caplog.text
