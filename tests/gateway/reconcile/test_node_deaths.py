"""Runs of several users are lost: only the node that they died on counts as ill."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from broker_bed import BrokerBed, until
from ray.exceptions import RayActorError

from jupyter_gpu_release.gateway.cluster import agent_client
from jupyter_gpu_release.gateway.reconcile import node_liveness, recovery
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.host.unix_socket_calls import LocalCallError
from jupyter_gpu_release.protocol.node import RunPhase
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, ResourceAsk
from jupyter_gpu_release.protocol.states import RunState


class _Everything(set[str]):
    """The marks of every run there may be."""

    def __contains__(self, run: object) -> bool:
        return True


_USERS = ("ann", "bob", "eve")
_GANG = ResourceAsk(gpus=2, ranks=2, nodes=2)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    monkeypatch.setattr(node_liveness, "_HELLO_S", 0.1)
    monkeypatch.setattr(recovery, "_AGENT_PATIENCE_S", 0.1)
    return BrokerBed(tmp_path, monkeypatch, a=3, b=3)


async def _running(bed: BrokerBed, service: GatewayService, ask: ResourceAsk) -> list[RunRecord]:
    """A run of each user, known to the ledger."""
    records = [await bed.running(service, ask=ask, user=user) for user in _USERS]
    await bed.in_ledger(service)
    return records


def _report_lost(service: GatewayService, record: RunRecord, ename: str, rank: int = 0) -> None:
    outcome = Outcome("lost", error=ErrorInfo(ename, "it is gone", code="lost"), failed_rank=rank)
    for phase in ("released", "final"):
        service.lifecycle.hear(record, RunPhase(record.attempt_id, phase, time.time(), outcome))


def _drained(service: GatewayService) -> list[str]:
    return [node.host for node in service.nodes.alive() if node.drained]


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["another cluster", "other agents", "agents that come later"])
async def test_what_was_lost_while_the_gateway_was_away_counts_against_no_node(
    bed: BrokerBed, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head was lost, or the cluster was stopped: that all nodes lost their runs then makes none of them ill."""
    async with bed.life() as first:
        runs = [record.run for record in await _running(bed, first, _GANG)]
    for node in bed.agents:
        bed.next_agent(node)
    if how == "another cluster":
        bed.ray.groups.clear()
        bed.settings["cluster"] = "two"
    for agent in bed.agents.values():
        agent.silent = how == "agents that come later"
    monkeypatch.setattr(agent_client, "CALL_S", 1.0)  # for these alone: the others answer at once
    async with bed.life() as second:
        for agent in bed.agents.values():
            agent.silent = False
        await node_liveness.refresh_nodes(second)
        for agent in bed.agents.values():
            await node_liveness.on_node_up(second, agent.info())
        records = [record for run in runs if (record := second.runs.find(run)) is not None]
        await until(lambda: {record.state for record in records} == {RunState.LOST})
        assert [record.snapshot.deaths for record in records] == [{}, {}, {}]
        assert _drained(second) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("dead", ["a", "b"])
async def test_a_gang_that_dies_with_one_of_its_nodes_counts_against_that_one(bed: BrokerBed, dead: str) -> None:
    """The same for the node that leads and for one that lends ranks."""
    async with bed.life() as service:
        records = await _running(bed, service, _GANG)
        bed.next_agent(dead)
        for record in records:
            assert record.lease is not None
            if record.lease.slots[0].node != dead:
                _report_lost(service, record, "NodeLost", rank=1)
        await node_liveness.refresh_nodes(service)
        await until(lambda: {record.state for record in records} == {RunState.LOST})
        await until(lambda: _drained(service) == [f"host-{dead}"])
        assert {host for record in records for host, _at_s in record.snapshot.deaths.values()} == {f"host-{dead}"}


@pytest.mark.asyncio
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_gang_whose_ranks_die_counts_against_the_node_of_the_first(bed: BrokerBed, rank: int) -> None:
    async with bed.life() as service:
        record = await bed.running(service, ask=_GANG)
        assert record.lease is not None
        host = f"host-{record.lease.slots[rank].node}"
        _report_lost(service, record, "CellProcessDied", rank)
        await until(lambda: record.state is RunState.LOST)
        assert [where for where, _at_s in record.snapshot.deaths.values()] == [host]


@pytest.mark.asyncio
async def test_nodes_that_did_not_join_a_gang_in_time_have_not_died(bed: BrokerBed) -> None:
    async with bed.life() as service:
        record = await bed.running(service, ask=_GANG)
        _report_lost(service, record, "GangIncomplete")
        await until(lambda: record.state is RunState.LOST)
        assert record.snapshot.deaths == {}


@pytest.mark.asyncio
async def test_a_store_that_hangs_under_cells_that_load_makes_no_node_ill(bed: BrokerBed) -> None:
    async with bed.life() as service:
        records = [await bed.running(service, ask=ResourceAsk(gpus=1), user=user) for user in _USERS * 2]
        assert {record.view.hosts[0] for record in records} == {"host-a", "host-b"}
        for record in records:
            _report_lost(service, record, "CellNotBegun")
        await until(lambda: {record.state for record in records} == {RunState.LOST})
        assert [record.snapshot.deaths for record in records] == [{}] * 6
        assert _drained(service) == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("problem", "is_blamed"),
    [(LocalCallError("StoreSilentError: the store has not answered for 10 s"), False), (RayActorError(), True)],
    ids=["the store hangs", "the agent dies"],
)
async def test_of_starts_that_fail_only_those_count_whose_agent_is_dead(
    bed: BrokerBed, problem: Exception, is_blamed: bool
) -> None:
    """Their cells may have begun, so they are lost either way."""
    async with bed.life() as service:
        for agent in bed.agents.values():
            agent.faults["start"] = problem
            agent.marks = _Everything()
        record = await bed.submitted(service, ask=ResourceAsk(gpus=1))
        await until(lambda: record.state is RunState.LOST)
        assert bool(record.snapshot.deaths) == is_blamed


@pytest.mark.asyncio
async def test_nodes_that_are_only_silent_are_given_up_and_not_ill(bed: BrokerBed) -> None:
    """The gateway itself may be cut off: then all of them would be."""
    bed.settings["node_grace_s"] = 0.2
    async with bed.life() as service:
        records = [await bed.running(service, ask=ResourceAsk(gpus=1), user=user) for user in _USERS * 2]
        for agent in bed.agents.values():
            agent.silent = True
        while {record.state for record in records} != {RunState.LOST}:
            await node_liveness.refresh_nodes(service)
        assert [record.snapshot.deaths for record in records] == [{}] * 6
        assert _drained(service) == []


@pytest.mark.asyncio
async def test_a_node_on_which_ranks_of_three_users_die_is_set_aside(bed: BrokerBed) -> None:
    """Those that are tried again elsewhere count, too."""
    async with bed.life() as service:
        *others, last = [
            await bed.running(service, ask=ResourceAsk(gpus=1), user=user, retries=int(user == "eve"))
            for user in _USERS
        ]
        hosts = {record.view.hosts[0] for record in (*others, last)}
        assert len(hosts) == 1
        for record in (last, *others):
            _report_lost(service, record, "CellProcessDied")
        await until(lambda: last.attempt == 1 and last.accepted)
        assert _drained(service) == [], "so far it is two"
        bed.say(service, last, "running")
        bed.end(service, last)
        await until(lambda: set(_drained(service)) == hosts)
