"""Runs that are preempted while something else happens to them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from broker_bed import ANN, BrokerBed, look_until, until

from jupyter_gpu_release.gateway.api import handlers
from jupyter_gpu_release.gateway.runs.machine import Cancel, Lost
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.host.unix_socket_calls import LocalCallError
from jupyter_gpu_release.presentation.wording import describe_pause
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import AttemptId, RunPhase, RunSaved, RunStays
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, Save
from jupyter_gpu_release.protocol.states import RunState

SAVE = Save(1, at_s=time.time(), place="epoch 3", values=Graph(b"saved"))


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=1, b=4)


async def _yielding(bed: BrokerBed, service: GatewayService, **facts: object) -> RunRecord:
    record = await bed.running(service, 4, restartable=True, **facts)
    service.lifecycle.preempt(record, "request", "asked by ann")
    await until(lambda: bed.agents["b"].stepping_aside == [record.run])
    assert record.state is RunState.YIELDING
    return record


def _reports(service: GatewayService, record: RunRecord, phase: str, outcome: Outcome | None = None) -> None:
    service.lifecycle.hear(record, RunPhase(AttemptId(record.run, 0), phase, time.time(), outcome))


@pytest.mark.asyncio
async def test_an_agent_that_dies_while_its_run_steps_aside_costs_what_was_not_saved(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await _yielding(bed, service)
        service.lifecycle.hear(record, RunSaved(record.attempt_id, SAVE))
        bed.next_agent("b")
        await look_until(service, lambda: record.attempt == 1)
        (past,) = record.view.attempts
        assert (past.status, past.place, past.was_saved) == ("lost", "epoch 3", True)
        await until(lambda: record.accepted)
        order = bed.agents["b"].orders[str(record.attempt_id)]
        assert (order.attempt, order.save, order.restartable) == (1, SAVE, True)
        _reports(service, record, "final", Outcome("ok"))  # of the attempt before
        assert record.state is RunState.STARTING
        assert record.view.notice is None


@pytest.mark.asyncio
async def test_a_run_that_is_cancelled_while_it_is_saved_ends_once_it_is(bed: BrokerBed) -> None:
    saved = Outcome("preempted", values=SAVE.values, ended_s=time.time(), save=SAVE)
    async with bed.life() as service:
        record = await _yielding(bed, service)
        _reports(service, record, "ended")
        _reports(service, record, "released", saved)
        await until(lambda: record.state is RunState.PERSISTING)
        assert (record.view.gone_at, record.view.outcome) == (None, None), "it has not ended"
        service.lifecycle.hear(record, Cancel("cancelled by ann"))
        assert record.state is RunState.PERSISTING
        _reports(service, record, "final", saved)
        view, outcome = record.view, record.outcome
        assert outcome is not None
        assert (view.state, outcome.status, outcome.values) == ("cancelled", "interrupted", SAVE.values)
        assert view.gone_at is not None


@pytest.mark.asyncio
async def test_a_gateway_that_restarts_gives_the_notice_again_and_ends_the_run_when_the_grace_is_over(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed.life() as first:
        record = await _yielding(bed, first)
        notice = record.view.notice
        await bed.in_ledger(first)
    agent = bed.agents["b"]
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600.0)
    async with bed.life() as second:
        again = second.runs.get(record.run)
        assert again is not None
        assert (again.state, again.view.notice) == (RunState.YIELDING, notice)
        await until(lambda: agent.killed == [record.run])
    assert agent.stepping_aside == [record.run, record.run]


@pytest.mark.asyncio
async def test_what_was_lost_begins_again_on_another_node(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service, 1, retries=1)
        (slot,) = record.lease.slots if record.lease is not None else ()
        bed.next_agent(slot.node)
        await look_until(service, lambda: record.attempt == 1 and record.accepted)
        (other,) = record.lease.slots if record.lease is not None else ()
        assert {slot.node, other.node} == {"a", "b"}
        assert bed.agents[other.node].orders[str(record.attempt_id)].save is None


@pytest.mark.asyncio
async def test_a_save_that_is_lost_before_it_is_durable_is_nothing_to_go_on_from(bed: BrokerBed) -> None:
    newer = Save(2, at_s=time.time(), place="epoch 5")
    async with bed.life() as service:
        record = await _yielding(bed, service)
        service.lifecycle.hear(record, RunSaved(record.attempt_id, SAVE))
        _reports(service, record, "ended")
        stepped = Outcome("preempted", values=Graph(b"", file="values.graph"), ended_s=time.time(), save=newer)
        _reports(service, record, "released", stepped)
        await until(lambda: record.state is RunState.PERSISTING)
        service.lifecycle.hear(record, Lost(record.attempt_id, "the node is gone"))
        await until(lambda: record.attempt == 1 and record.accepted)
        assert bed.agents["b"].orders[str(record.attempt_id)].save == SAVE
        assert [(past.status, past.place) for past in record.view.attempts] == [("lost", "epoch 3")]


@pytest.mark.asyncio
async def test_a_run_whose_node_takes_no_notice_is_ended_when_its_grace_is_over(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = bed.agents["b"]
    async with bed.life() as service:
        record = await bed.running(service, 4, restartable=True)
        agent.faults["step_aside"] = LocalCallError("it is busy")
        monkeypatch.setattr(time, "time", lambda now=time.time: now() - 3600.0)
        service.lifecycle.preempt(record, "request", "asked by ann")
        monkeypatch.undo()
        await until(lambda: agent.killed == [record.run])


@pytest.mark.asyncio
async def test_a_run_that_cannot_step_aside_is_not_asked_again_at_once_by_the_scheduler(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed.life() as service:
        taken = await bed.running(service, 4, restartable=True, priority="low")
        urgent = await bed.submitted(service, 4, priority="high")
        await until(lambda: bed.agents["b"].stepping_aside == [taken.run])
        stays = RunStays(taken.attempt_id, "there is no room on the store", for_now=True)
        service.lifecycle.hear(taken, stays)
        assert "no room on the store" in taken.view.reason
        for _ in range(3):
            service.lifecycle.queue._serve_now()
        assert taken.state is RunState.RUNNING
        later = time.monotonic() + 3600.0
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + later)
        service.lifecycle.queue._serve_now()
        assert taken.state is RunState.YIELDING
        assert taken.view.notice is not None
        assert taken.view.notice.run == urgent.run


@pytest.mark.asyncio
async def test_nobody_is_ended_for_a_run_that_was_cancelled_meanwhile(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed.life() as service:
        taken = await bed.running(service, 4, restartable=True, priority="low")
        urgent = await bed.submitted(service, 4, priority="high")
        await until(lambda: bed.agents["b"].stepping_aside == [taken.run])
        service.lifecycle.hear(urgent, Cancel("cancelled by ann"))
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600.0)
        await until(lambda: taken.state is RunState.RUNNING)
        assert taken.view.notice is None
        assert bed.agents["b"].killed == []


@pytest.mark.asyncio
async def test_a_run_that_does_not_move_after_all_keeps_no_other_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=4, b=4)
    async with bed.life() as service:
        small = [await bed.running(service, 1, restartable=True) for _ in range(5)]
        ends = [record for record in small if record.lease is not None and record.lease.slots[0].node == "a"][:3]
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600.0)  # others like them take an hour
        for record in ends:
            bed.end(service, record)
        await until(lambda: len(service.leases.all()) == 2)
        gang = await bed.submitted(service, 4)
        await until(lambda: any(agent.stepping_aside for agent in bed.agents.values()))
        (asked,) = [run for agent in bed.agents.values() for run in agent.stepping_aside]
        moved = service.runs.get(asked)
        assert moved is not None
        assert moved.view.notice is not None
        assert moved.view.notice.action == "consolidate"
        assert moved.view.reason == "ann's run fits when it is moved to host-a"
        service.lifecycle.hear(moved, RunStays(moved.attempt_id, "`sock` is an open socket"))
        assert service.lifecycle.queue.inventory.scheduler.promised == {}
        service.lifecycle.hear(gang, Cancel("cancelled by ann"))
        others = [await bed.running(service, 3) for _ in range(2)]
        assert all(other.lease is not None for other in others)


@pytest.mark.asyncio
async def test_a_save_that_comes_late_is_not_that_of_the_next_attempt(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await _yielding(bed, service)
        service.lifecycle.hear(record, RunSaved(record.attempt_id, SAVE))
        bed.next_agent("b")
        await look_until(service, lambda: record.attempt == 1 and record.accepted)
        service.lifecycle.hear(record, RunSaved(record.attempt_id, Save(2, at_s=time.time(), place="epoch 4")))
        assert record.save == SAVE
        own = Save(2, attempt=1, at_s=time.time(), place="epoch 5")
        service.lifecycle.hear(record, RunSaved(record.attempt_id, own))
        assert record.save == own


@pytest.mark.asyncio
async def test_who_cancels_a_run_again_that_cannot_be_saved_does_not_wait_for_that_save(bed: BrokerBed) -> None:
    request: Any = SimpleNamespace(query_params={})
    async with bed.life() as service:
        record = await _yielding(bed, service)
        service.lifecycle.hear(record, RunSaved(record.attempt_id, SAVE))
        _reports(service, record, "ended")
        newer = Save(2, at_s=time.time(), place="epoch 5")
        stepped = Outcome("preempted", values=Graph(b"", file="values.graph"), ended_s=time.time(), save=newer)
        _reports(service, record, "released", stepped)
        await until(lambda: record.state is RunState.PERSISTING)
        request.path_params = {"run": record.run}
        assert (await handlers.cancel_run(service, ANN, request)).state == "persisting"
        assert bed.agents["b"].phases
        await handlers.cancel_run(service, ANN, request)
        assert bed.agents["b"].phases == {}, "its node gives the save up"
        _reports(service, record, "final", msgspec.structs.replace(stepped, values=None))
        outcome = record.outcome
        assert outcome is not None
        assert (record.state, outcome.values) == (RunState.CANCELLED, SAVE.values)


@pytest.mark.asyncio
async def test_a_detached_run_that_waits_goes_on_on_another_cluster(bed: BrokerBed) -> None:
    async with bed.life() as first:
        blocks = await bed.running(first, 4)
        waits = await bed.submitted(first, 4, restartable=True, detach=True)
        ordinary = await bed.submitted(first, 4)
        await bed.in_ledger(first)
    bed.ray.groups.clear()
    bed.next_agent("b")
    bed.settings["cluster"] = "two"
    async with bed.life() as second:
        found = [second.runs.find(each.run) for each in (blocks, waits, ordinary)]
        await until(lambda: found[1] is not None and found[1].accepted)
        assert [each.state.word for each in found if each is not None] == ["lost", "starting", "lost"]


@pytest.mark.asyncio
async def test_scattered_runs_are_moved_together_for_a_gang_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=4, b=4)
    async with bed.life() as service:
        small = [await bed.running(service, 1, restartable=True) for _ in range(8)]
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600.0)  # others like them take an hour
        for node in ("a", "b"):
            there = [record for record in small if record.lease is not None and record.lease.slots[0].node == node]
            for record in there[:2]:
                bed.end(service, record)
        await until(lambda: len(service.leases.all()) == 4)
        gang = await bed.submitted(service, ask=ResourceAsk(gpus=4, ranks=4))
        moved = [record for record in small if record.view.notice is not None]
        assert len(moved) == 2
        await until(lambda: all(str(record.attempt_id) in bed.stepping_aside for record in moved))
        for record in moved:
            for phase, outcome in (("ended", None), ("released", _saved(record)), ("final", _saved(record))):
                _reports(service, record, phase, outcome)
        await until(lambda: gang.accepted and all(record.accepted for record in moved))
        places = {slot.node for record in moved if record.lease is not None for slot in record.lease.slots}
        assert gang.lease is not None
        assert [(slot.node, slot.gpus) for slot in gang.lease.slots] == [("b", 4)]
        assert places == {"a"}
        assert [describe_pause(record.view.attempts[0], "bob") for record in moved] == [
            "preempted for ann at epoch 5"
        ] * 2


def _saved(record: RunRecord) -> Outcome:
    save = Save(2, record.attempt, at_s=time.time(), place="epoch 5")
    return Outcome("preempted", values=SAVE.values, ended_s=time.time(), save=save)


@pytest.mark.asyncio
async def test_a_run_that_waits_again_is_not_lost_with_the_node_that_it_was_on(bed: BrokerBed) -> None:
    """A look after a node names its runs first, and comes to each a moment later."""
    async with bed.life() as service:
        record = await _yielding(bed, service)
        blocks = await bed.submitted(service, 4, priority="high")
        for phase, outcome in (("ended", None), ("released", _saved(record)), ("final", _saved(record))):
            _reports(service, record, phase, outcome)
        await until(lambda: blocks.accepted and record.attempt == 1)
        service.lifecycle.hear(record, Lost(record.attempt_id, "the node agent on host-b died, and the cell with it"))
        assert (record.state, record.run in service.lifecycle.queue) == (RunState.QUEUED, True)
