"""Gangs over nodes: each node hears how many ranks it has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from broker_bed import BrokerBed, until

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.gateway.dispatch.gangs import check_gang
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import AttemptId, RunPhase, RunStays
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, Save
from jupyter_gpu_release.protocol.states import RunState


@pytest.mark.asyncio
async def test_a_gang_on_any_nodes_may_be_spread_unevenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=4)
    async with bed.life() as service:
        record = await bed.running(service, ask=ResourceAsk(gpus=5, ranks=5, any_nodes=True))
        lease = service.leases.of_run(record.run)
        assert lease is not None
        assert [(slot.node, slot.gpus) for slot in lease.slots] == [("b", 4), ("a", 1)]
        order = bed.agents["b"].orders[str(record.attempt_id)]
        assert (order.ranks, order.gpus) == (4, 4)
        assert [(member.node, member.ranks) for member in order.gang.members] == [("a", 1)]
        assert bed.agents["a"].lent == {record.run}


def test_any_nodes_is_not_a_number_of_nodes() -> None:
    check_gang(ResourceAsk(gpus=3, ranks=3, any_nodes=True))
    with pytest.raises(OptionError, match="for any"):
        check_gang(ResourceAsk(gpus=4, ranks=4, nodes=2, any_nodes=True))


_ELASTIC = ResourceAsk(gpus=4, ranks=4, any_nodes=True, min_gpus=1)


def _ranks(bed: BrokerBed, record: RunRecord) -> int:
    """All ranks that its leader was told of."""
    assert record.lease is not None
    order = bed.agents[record.lease.slots[0].node].orders[str(record.attempt_id)]
    return order.ranks + sum(member.ranks for member in order.gang.members)


async def _steps_aside(bed: BrokerBed, service: GatewayService, record: RunRecord, *, goes_on: bool = True) -> None:
    """It is saved at its next round, and goes on, or waits."""
    await until(lambda: any(str(record.attempt_id) in agent.stepping_aside for agent in bed.agents.values()))
    attempt = record.attempt
    save = Save(attempt + 1, attempt, time.time(), "epoch 3")
    outcome = Outcome("preempted", values=Graph(b"saved"), ended_s=time.time(), save=save)
    for phase in ("ended", "released", "final"):
        said = outcome if phase != "ended" else None
        service.lifecycle.hear(record, RunPhase(AttemptId(record.run, attempt), phase, time.time(), said))
    for agent in bed.agents.values():
        agent.stepping_aside.clear()
    await until(lambda: record.attempt == attempt + 1 and record.accepted is goes_on)
    if not goes_on:
        return
    bed.say(service, record, "running")


@pytest.mark.asyncio
async def test_a_gang_with_sharded_names_keeps_its_size_and_is_taken_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=4)
    async with bed.life() as service:
        blocks = await bed.running(service, 3)
        record = await bed.running(service, ask=_ELASTIC, restartable=True, priority="low")
        why = "`model` is sharded over 2 ranks: it goes on with 2 only"
        service.lifecycle.hear(record, RunStays(record.attempt_id, why, of_size=True))
        assert (record.view.stays, record.view.most_gpus) == ("", 0)
        bed.end(service, blocks)
        await until(lambda: len(service.leases.all()) == 1)
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 120.0)
        service.lifecycle.queue._serve_now()
        assert record.view.notice is None, "it would grow, were it not sharded"
        urgent = await bed.submitted(service, 4, priority="high")
        await _steps_aside(bed, service, record, goes_on=False)
        await until(lambda: urgent.accepted)
        assert (record.state, record.view.gpus) == (RunState.QUEUED, 2)
        await bed.in_ledger(service)
    async with bed.life() as second:
        again = second.runs.find(record.run)
        assert again is not None
        assert (again.request.ask.gpus, again.request.ask.ranks, again.request.ask.min_gpus) == (2, 2, None)


@pytest.mark.asyncio
async def test_an_elastic_gang_begins_with_fewer_ranks_grows_and_gives_some_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=4)
    async with bed.life() as service:
        blocks = await bed.running(service, 3)
        record = await bed.running(service, ask=_ELASTIC, restartable=True, priority="low")
        assert (record.view.gpus, record.view.ranks, record.view.most_gpus, _ranks(bed, record)) == (2, 2, 4, 2)
        bed.end(service, blocks)
        await until(lambda: len(service.leases.all()) == 1)
        service.lifecycle.queue._serve_now()
        assert record.state is RunState.RUNNING, "not as soon as it has begun"
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 120.0)
        service.lifecycle.queue._serve_now()
        notice = record.view.notice
        assert notice is not None
        assert (notice.action, notice.reason) == ("grow", "to go on with 4 GPUs")
        await _steps_aside(bed, service, record)
        assert (record.view.gpus, record.view.ranks, _ranks(bed, record)) == (4, 4, 4)
        urgent = await bed.submitted(service, 3, priority="high")
        await _steps_aside(bed, service, record)
        await until(lambda: urgent.accepted)
        assert (record.view.gpus, record.view.ranks, _ranks(bed, record)) == (2, 2, 2)
        assert [past.reason for past in record.view.attempts] == [
            "to go on with 4 GPUs",
            "another run of yours has the higher priority in this queue",
        ]
        bed.end(service, record)
        await until(lambda: record.state is RunState.SUCCEEDED)
        await bed.in_ledger(service)
    async with bed.life() as second:
        again = second.runs.find(record.run)
        assert again is not None
        assert (again.view.gpus, len(again.view.attempts)) == (2, 2)


@pytest.mark.asyncio
async def test_a_gang_that_cannot_be_moved_keeps_the_size_that_it_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        blocks = await bed.running(service, 2)
        record = await bed.running(service, ask=_ELASTIC)
        assert (record.view.gpus, _ranks(bed, record)) == (2, 2)
        bed.end(service, blocks)
        monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600.0)
        await until(lambda: len(service.leases.all()) == 1)
        service.lifecycle.queue._serve_now()
        assert record.state is RunState.RUNNING


@pytest.mark.parametrize(
    "ask",
    [
        ResourceAsk(gpus=4, ranks=4, min_gpus=1),
        ResourceAsk(gpus=4, ranks=2, any_nodes=True, min_gpus=1),
        ResourceAsk(gpus=4, ranks=4, any_nodes=True, min_gpus=5),
        ResourceAsk(gpus=4, ranks=4, any_nodes=True, min_gpus=0),
        ResourceAsk(gpus=0, ranks=4, any_nodes=True, min_gpus=1),
    ],
)
def test_a_gang_that_cannot_begin_with_fewer_is_refused(ask: ResourceAsk) -> None:
    with pytest.raises(OptionError, match="to begin with"):
        check_gang(ask)
