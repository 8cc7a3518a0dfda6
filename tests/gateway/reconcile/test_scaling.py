"""Borrowed nodes: who lends them is asked for what waits, idle ones go, and nothing is ended for that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
import ray
from broker_bed import BrokerBed, until

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster.node_source import FixedNodes, NodeSource
from jupyter_gpu_release.gateway.cluster.nodes import Node
from jupyter_gpu_release.gateway.reconcile import node_liveness
from jupyter_gpu_release.gateway.reconcile.scaling import Scaling
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.scheduling.decisions import Wait
from jupyter_gpu_release.scheduling.workload import Run


class _Lender(NodeSource):
    """Notes what it is asked, and spares what a test says."""

    scales = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waiting: set[str] = set()
        self.idle_s: dict[str, float] = {}
        self.given: list[str] = []

    async def look(self, lacking: Sequence[Run], waiting: Collection[str], idle_s: Mapping[str, float]) -> bool:
        self.asked, self.waiting, self.idle_s = [run.run for run in lacking], set(waiting), dict(idle_s)
        return True

    def with_answer(self, wait: Wait) -> Wait:
        return wait

    async def give_back(self, node: Node) -> None:
        self.given.append(node.node)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Agents that were ended."""
    ended: list[object] = []
    monkeypatch.setattr(ray, "kill", lambda agent, **_: ended.append(agent))
    return ended


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[object]) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=1, b=1)


def _lent(service: GatewayService) -> tuple[_Lender, Scaling]:
    lender = service.node_source = _Lender()
    for node in service.nodes.alive():
        assert node.info is not None
        node.info = msgspec.structs.replace(node.info, version=__version__)
    return lender, Scaling(service)


@pytest.mark.asyncio
async def test_the_lender_hears_who_lacks_a_node_and_for_how_long_nodes_have_nothing_to_do(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed.life() as service:
        lender, scaling = _lent(service)
        await scaling.look()
        assert set(lender.idle_s) == {"a", "b"}
        first, second = [await bed.running(service) for _ in range(2)]
        waits = await bed.submitted(service)
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 100.0)
        await scaling.look()
        assert (lender.asked, lender.waiting, lender.idle_s) == ([waits.run], {waits.run}, {})
        bed.end(service, first)
        await until(lambda: waits.accepted)
        bed.end(service, second)
        await until(lambda: len(service.leases.all()) == 1)
        await scaling.look()
        (idle,) = lender.idle_s.values()
        assert (lender.asked, lender.waiting) == ([], set())
        assert idle < 50.0, "it had something to do until now"


@pytest.mark.asyncio
async def test_an_idle_node_is_given_back_when_its_agent_is_ended_and_a_busy_one_is_not(
    bed: BrokerBed, killed: list[object]
) -> None:
    async with bed.life() as service:
        lender, scaling = _lent(service)
        record = await bed.running(service)
        assert record.lease is not None
        busy = record.lease.slots[0].node
        (idle,) = {"a", "b"} - {busy}
        lender.spare = ("a", "b", "gone")
        await scaling.look()
        assert (lender.given, killed) == ([idle], [bed.agents[idle]])
        node = service.nodes.find(idle)
        assert node is not None
        assert (node.is_asleep, node.agent, node.reachable) == (True, None, False)
        await scaling.look()
        assert lender.given == [idle]


@pytest.mark.asyncio
@pytest.mark.parametrize("keeps", ["results", "silence", "head"])
async def test_a_node_that_may_have_something_left_stays(bed: BrokerBed, killed: list[object], keeps: str) -> None:
    async with bed.life() as service:
        lender, scaling = _lent(service)
        lender.spare = ("a",)
        node = service.nodes.find("a")
        assert node is not None
        if keeps == "results":  # of a run whose lease is gone
            bed.agents["a"].phases["20260101-000000-00000001"] = "released"
        elif keeps == "silence":
            bed.agents["a"].faults["runs"] = ClusterError("it does not answer")
        else:
            node.is_head = True
        await scaling.look()
        assert (lender.given, killed, node.is_asleep, node.agent) == ([], [], False, bed.agents["a"])


@pytest.mark.asyncio
async def test_a_sleeping_node_is_woken_when_somebody_waits_unless_it_is_about_to_end(bed: BrokerBed) -> None:
    async with bed.life() as service:
        lender, scaling = _lent(service)
        for node in service.nodes.alive():
            node.is_asleep = True
        await scaling.look()
        assert [node.is_asleep for node in service.nodes.alive()] == [True, True], "nobody waits"
        await bed.submitted(service)
        lender.leaving = frozenset({"b"})
        await scaling.look()
        assert {node.node: node.is_asleep for node in service.nodes.alive()} == {"a": False, "b": True}


@pytest.mark.asyncio
async def test_what_is_restartable_leaves_a_node_that_is_about_to_end_and_the_rest_runs_on(bed: BrokerBed) -> None:
    async with bed.life() as service:
        lender, scaling = _lent(service)
        moves = await bed.running(service, restartable=True)
        stays = await bed.running(service)
        await scaling.look()
        assert (moves.state, stays.state) == (RunState.RUNNING, RunState.RUNNING)
        lender.leaving = frozenset({"a", "b"})
        for _ in range(2):
            await scaling.look()
        await until(lambda: bed.stepping_aside == [moves.run])
        assert (moves.state, stays.state) == (RunState.YIELDING, RunState.RUNNING)
        assert moves.view.notice is not None
        assert (moves.view.notice.action, moves.view.notice.reason) == ("request", "its node is about to end")
        assert stays.view.reason == "its node is about to end, and the run with it"
        lender.leaving = frozenset()
        await scaling.look()
        assert stays.view.reason == ""


@pytest.mark.asyncio
async def test_an_idle_agent_of_another_version_is_made_anew_once(bed: BrokerBed, killed: list[object]) -> None:
    async with bed.life() as service:
        record = await bed.running(service)
        assert record.lease is not None
        busy = record.lease.slots[0].node
        (idle,) = {"a", "b"} - {busy}
        service.node_source = FixedNodes()
        scaling = Scaling(service)
        await scaling.look()  # the agents of the bed say that they are of another version
        assert killed == [bed.agents[idle]]
        node = service.nodes.find(idle)
        assert node is not None
        assert (node.is_asleep, node.info, node.agent) == (False, None, None)
        node.agent, node.reachable = bed.agents[idle], True
        node.info = bed.agents[idle].info()
        await scaling.look()
        assert killed == [bed.agents[idle]], "it has that version all the same"
        bed.end(service, record)
        await until(lambda: not service.leases.all() and not bed.agents[busy].phases)
        await scaling.look()
        assert killed == [bed.agents[idle], bed.agents[busy]]


@pytest.mark.asyncio
async def test_a_node_that_was_woken_while_its_agent_was_asked_stays(
    bed: BrokerBed, killed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed.life() as service:
        lender, scaling = _lent(service)
        lender.spare = ("a",)
        node = service.nodes.find("a")
        assert node is not None
        runs = type(bed.agents["a"]).do_runs

        async def wake_meanwhile(agent: object) -> bytes:
            node.is_asleep = False
            return await runs(agent)

        monkeypatch.setattr(type(bed.agents["a"]), "do_runs", wake_meanwhile)
        await scaling.look()
        assert (lender.given, killed, node.agent) == ([], [], bed.agents["a"])


@pytest.mark.asyncio
async def test_who_lacks_a_node_is_told_of_at_once(bed: BrokerBed) -> None:
    async with bed.life() as service:
        queue = service.lifecycle.queue
        for _ in range(2):
            await bed.running(service)
        await queue.until_more_lack(0.0)
        heard = asyncio.ensure_future(queue.until_more_lack(3600.0))
        waits = await bed.submitted(service)
        await asyncio.wait_for(heard, 30)
        assert [record.run for record in queue.lacking()] == [waits.run]


@pytest.mark.asyncio
async def test_a_node_takes_who_waits_for_it_as_soon_as_its_agent_is_there(bed: BrokerBed) -> None:
    """It does not wait for the next look around."""
    async with bed.life() as service:
        node = service.nodes.find("b")
        assert node is not None
        node.info, node.adopted = None, False
        await bed.running(service)
        waits = await bed.submitted(service)
        assert waits.lease is None
        await node_liveness.on_node_up(service, bed.agents["b"].info())
        await until(lambda: waits.lease is not None)
