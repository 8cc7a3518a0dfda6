"""A run waits for its environment before it is queued: no GPU is held while nodes build it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

import msgspec
import pytest
import ray
from broker_bed import ANN, BrokerBed, look_until, until

from jupyter_gpu_release.errors import ClusterError, RequestError
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.cluster import environment_builds
from jupyter_gpu_release.gateway.dispatch import environment_waits
from jupyter_gpu_release.gateway.reconcile.scaling import Scaling
from jupyter_gpu_release.gateway.runs.machine import Cancel, Lost
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.config import UnixUser
from jupyter_gpu_release.protocol.environments import LACKS, BuildReport, Plan, PlannedPackage, named_by_content
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import RunState, new_run_id
from jupyter_gpu_release.protocol.wire import encode

_BOB = Caller("bob", "user")
_WHEEL = b"a wheel of the notebook's own"
_DIGEST = f"sha256:{hashlib.sha256(_WHEEL).hexdigest()}"
_PLAN = named_by_content(
    Plan(
        "3.11.9",
        "here",
        [PlannedPackage("einops", "0.8.1", LACKS), PlannedPackage("mine", "1", LACKS, True, digest=_DIGEST)],
    )
)


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    _look_often(monkeypatch)
    return BrokerBed(tmp_path, monkeypatch, a=1)


def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_QUIET_S", "_TOLD_S", "_LOOK_S"):
        monkeypatch.setattr(environment_waits, name, 0.01)


async def _submitted(
    service: GatewayService, retries: int = 0, ask: ResourceAsk | None = None, caller: Caller = ANN
) -> RunRecord:
    payload = encode(CellPayload(source="x"))
    request = RunRequest(new_run_id(), "s", ask or ResourceAsk(), payload, environment=_PLAN, retries=retries)
    record = await service.submit(caller, request)
    await service.committed(record)
    return record


@pytest.mark.asyncio
async def test_no_gpu_is_held_while_it_is_built_and_it_is_built_once(bed: BrokerBed) -> None:
    agent = bed.agents["a"]
    async with bed.life() as service:
        service.environments.keep_wheel(_DIGEST, _WHEEL)
        first, second = await _submitted(service), await _submitted(service)
        await until(lambda: second.view.reason)
        reason = "no GPU is held yet: building its environment: 1 of 2 packages (einops 0.8.1, mine 1)"
        assert (second.view.reason, second.state) == (reason, RunState.QUEUED)
        other = await bed.running(service)
        assert other.state is RunState.RUNNING, "the only GPU is free for who needs nothing"
        bed.end(service, other)
        agent.fetched = 2
        await until(lambda: "2 of 2 packages" in second.view.reason)
        agent.has_built.set()
        await until(lambda: first.accepted)
        assert agent.builds == [(_PLAN.digest, [_WHEEL])]
        assert agent.orders[first.run].environment == _PLAN.digest
        assert first.view.built == "packages that the cluster lacks: einops 0.8.1, mine 1 · ready in 1.9 s"
        assert (first.view.environment_digest, other.view.environment_digest) == (_PLAN.digest, "")
        third = await _submitted(service)
        assert (third.view.reason, third.view.built) != (reason, first.view.built)
        assert len(agent.builds) == 1, "it is there"


@pytest.mark.asyncio
async def test_who_waited_longest_is_queued_first_though_a_node_is_slow_to_count(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, counted = bed.agents["a"], []

    async def count(*_: object) -> None:
        counted.append(1)
        await asyncio.Event().wait()

    async with bed.life() as service:
        monkeypatch.setattr(service.environments, "count_fetched", count)
        first, second = await _submitted(service), await _submitted(service)
        await until(lambda: len(counted) == 2)
        agent.has_built.set()
        await until(lambda: first.accepted)
        assert not second.accepted


@pytest.mark.asyncio
async def test_an_operators_build_tells_how_far_it_is(bed: BrokerBed) -> None:
    agent = bed.agents["a"]
    async with bed.life() as service:
        service.environments.keep_wheel(_DIGEST, _WHEEL)
        assert (await service.environments.progress(_PLAN)).fetched is None
        building = asyncio.create_task(service.environments.build_everywhere(_PLAN))
        await until(lambda: agent.builds)
        assert (await service.environments.progress(_PLAN)).fetched == 1
        agent.fetched = 2
        assert (await service.environments.progress(_PLAN)).fetched == 2
        agent.has_built.set()
        assert (await building).hosts == ["host-a"]
        assert (await service.environments.progress(_PLAN)).fetched is None


@pytest.mark.asyncio
async def test_a_build_ends_with_the_last_run_that_waits_for_it(bed: BrokerBed) -> None:
    agent = bed.agents["a"]
    async with bed.life() as service:
        first, second = await _submitted(service), await _submitted(service)
        await until(lambda: second.view.reason)
        service.lifecycle.hear(first, Cancel("interrupted"))
        assert first.state is RunState.CANCELLED
        third = await _submitted(service)
        await until(lambda: third.view.reason)
        assert agent.stopped == [], "two still wait for it"
        for record in (second, third):
            service.lifecycle.hear(record, Cancel("interrupted"))
        await until(lambda: agent.stopped)
        assert agent.stopped == [_PLAN.digest]
        agent.has_built.set()
        fourth = await _submitted(service)
        await until(lambda: fourth.accepted)
        assert len(agent.builds) == 2, "it is built anew"


@pytest.mark.asyncio
async def test_a_failed_build_fails_the_run_with_what_the_installer_said(bed: BrokerBed) -> None:
    agent = bed.agents["a"]
    agent.build_report = BuildReport(problem="the installer says: no space", hint="make room there")
    agent.has_built.set()
    async with bed.life() as service:
        record = await _submitted(service)
        await until(lambda: record.state.is_terminal)
        assert record.state is RunState.FAILED
        assert record.view.granted_at is None
        assert _error(record) == "host-a: the installer says: no space"
        assert not agent.orders


@pytest.mark.asyncio
async def test_a_node_that_cannot_build_it_fails_no_run_that_another_has_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_often(monkeypatch)
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1)
    bed.agents["a"].build_report = BuildReport(problem="no space")
    for agent in bed.agents.values():
        agent.has_built.set()
    async with bed.life() as service:
        record = await _submitted(service)
        await until(lambda: record.accepted)
        assert list(bed.agents["b"].orders) == [record.run]


@pytest.mark.asyncio
async def test_each_node_is_asked_once_for_a_run_until_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_often(monkeypatch)
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1, c=1, d=1, e=1)
    for name, agent in bed.agents.items():
        agent.build_report = BuildReport(problem=f"no space on {name}", hint="make room there")
        agent.has_built.set()
    async with bed.life() as service:
        record = await _submitted(service)
        await until(lambda: record.state.is_terminal)
        assert [len(agent.builds) for agent in bed.agents.values()] == [1] * 5
        assert _error(record).startswith("host-")
        assert "no space on" in _error(record)
        bed.agents["e"].build_report = BuildReport(1.94)
        again = await _submitted(service)
        await until(lambda: again.accepted)
        assert list(bed.agents["e"].orders) == [again.run], "what failed is tried again for another run"


@pytest.mark.asyncio
async def test_a_node_that_failed_is_not_asked_again_while_those_that_have_it_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_often(monkeypatch)
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1)
    bed.agents["a"].build_report = BuildReport(problem="no space")
    for agent in bed.agents.values():
        agent.has_built.set()
    async with bed.life() as service:
        first = await _submitted(service)
        await until(lambda: first.accepted)
        second = await _submitted(service)
        await until(lambda: len(bed.agents["a"].builds) == 2)
        await _looks(service, monkeypatch, 5)
        assert (second.state, len(bed.agents["a"].builds)) == (RunState.QUEUED, 2)
        bed.next_agent("a")
        bed.agents["a"].build_report = BuildReport(1.94)
        await look_until(service, lambda: second.accepted)
        assert list(bed.agents["a"].orders) == [second.run], "the node is another one now"


@pytest.mark.asyncio
@pytest.mark.parametrize("is_dead", [True, False])
async def test_a_run_whose_node_is_away_while_it_builds_waits_for_it(bed: BrokerBed, is_dead: bool) -> None:
    agent = bed.agents["a"]
    away = ray.exceptions.ActorDiedError() if is_dead else ray.exceptions.ActorUnavailableError("silent", None)
    agent.faults["build_environment"] = away
    agent.has_built.set()
    async with bed.life() as service:
        record = await _submitted(service)
        await until(lambda: record.view.position is not None)
        assert (record.state, service.leases.all()) == (RunState.QUEUED, [])
        agent.faults.clear()
        if is_dead:
            bed.next_agent("a")
            await _come(bed, service, "a")
        await look_until(service, lambda: record.accepted)


@pytest.mark.asyncio
@pytest.mark.parametrize("packages", ["", "of the cluster"])
async def test_a_run_for_which_the_node_that_came_can_build_none_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str
) -> None:
    """It builds none at all, or this one failed: no other node would help."""
    _look_often(monkeypatch)
    bed = BrokerBed(tmp_path, monkeypatch, head=0, a=1)
    agent = bed.agents["a"]
    agent.packages = packages
    agent.build_report = BuildReport(problem="the installer says: no space", hint="make room there")
    agent.has_built.set()
    bed.ray.dead.add("a")
    async with bed.life() as service:
        service.node_source.scales = True
        record = await _submitted(service)
        await until(lambda: service.lifecycle.queue.lacking() == [record])
        await _come(bed, service, "a")
        await until(lambda: record.state.is_terminal)
        said = "the installer says: no space" if packages else "no node that could take the run builds environments"
        assert said in _error(record)
        assert not service.lifecycle.queue.has_waiting
        assert (record.view.granted_at, agent.orders) == (None, {})


_GANGS = {
    "on two nodes": (ResourceAsk(gpus=4, ranks=4, nodes=2), {"a": 1, "b": 2, "c": 2, "d": 2}, [2, 2]),
    "anywhere": (ResourceAsk(gpus=4, ranks=4, any_nodes=True), {"a": 1, "b": 1, "c": 3}, [3, 1]),
    "where the first one cannot build": (ResourceAsk(gpus=2, ranks=2, nodes=2), {"a": 1, "b": 1, "c": 1}, [1, 1, 1]),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", _GANGS)
async def test_of_a_gang_all_nodes_where_its_ranks_fit_build_it_and_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ask, gpus, wanted = _GANGS[name]
    _look_often(monkeypatch)
    bed = BrokerBed(tmp_path, monkeypatch, **gpus)
    if len(wanted) == 3:
        bed.agents["a"].build_report = BuildReport(problem="no space")
    async with bed.life() as service:
        record = await _submitted(service, ask=ask)
        await until(lambda: record.view.reason)
        assert service.leases.all() == []
        for agent in bed.agents.values():
            agent.has_built.set()
        await until(lambda: record.accepted)
        built = [gpus[node] for node, agent in bed.agents.items() if agent.builds]
        assert sorted(built) == sorted(wanted)
        assert {slot.node for lease in service.leases.all() for slot in lease.slots} <= {
            node for node, agent in bed.agents.items() if agent.builds and not agent.build_report.problem
        }


def _error(record: RunRecord) -> str:
    assert record.outcome is not None
    assert record.outcome.error is not None
    return record.outcome.error.evalue


async def _looks(service: GatewayService, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Wait until it was looked so often for nodes that could build further."""
    looks, known = [], service.environments.known
    monkeypatch.setattr(service.environments, "known", lambda *asked: looks.append(1) or known(*asked))
    await until(lambda: len(looks) >= count)


@pytest.mark.asyncio
async def test_on_a_node_that_comes_for_a_run_it_is_built_before_the_run_is_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_often(monkeypatch)
    monkeypatch.setattr(environment_waits, "_LOOK_S", 600.0)  # that a node comes is enough
    bed = BrokerBed(tmp_path, monkeypatch, head=0, a=1)
    agent = bed.agents["a"]
    bed.ray.dead.add("a")
    async with bed.life() as service:
        service.node_source.scales = True
        queue = service.lifecycle.queue
        record = await _submitted(service)
        await until(lambda: queue.lacking() == [record])
        await _come(bed, service, "a")
        await until(lambda: agent.builds)
        assert record.state is RunState.QUEUED
        assert service.leases.all() == []
        reason = "next in the queue: no GPU is held yet: its environment is built on a node with room"
        assert record.view.reason == reason
        assert (queue.lacking(), queue.has_waiting) == ([], True), "it needs no further node"
        assert "a" not in Scaling(service)._idle_s(0.0), "the node stays"
        other = await bed.running(service)
        assert other.state is RunState.RUNNING, "its GPU is free for who needs nothing"
        bed.end(service, other)
        agent.has_built.set()
        await until(lambda: record.accepted)
        assert record.view.built.endswith("ready in 1.9 s")


@pytest.mark.asyncio
async def test_a_run_whose_node_has_lost_its_environment_gives_its_gpus_back_first(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_waits, "_LOOK_S", 60.0)  # the queue does not hear of it
    agent = bed.agents["a"]
    agent.has_built.set()
    async with bed.life() as service:
        other = await bed.running(service)
        record = await _submitted(service)
        await until(lambda: record.view.position is not None and record.view.built)
        await asyncio.sleep(0)  # the queue is told of it once more
        service.lifecycle.queue.inventory.in_step()
        agent.has_built.clear()
        service.environments.note_use(service.nodes.ready(), _PLAN, "ann", is_there=False)
        bed.end(service, other)
        await until(lambda: len(agent.builds) == 2)
        assert (record.state, service.leases.all()) == (RunState.QUEUED, [])
        agent.has_built.set()
        await until(lambda: record.accepted)


async def _come(bed: BrokerBed, service: GatewayService, name: str) -> None:
    """A node is started, and its agent introduces itself."""
    bed.ray.dead.discard(name)
    service.nodes.refresh(bed.ray.nodes())
    node = service.nodes.find(name)
    assert node is not None
    node.agent, node.adopted = bed.agents[name], True
    await look_until(service, lambda: node.info is not None)


@pytest.mark.asyncio
async def test_where_cells_run_as_their_owners_a_node_has_it_for_each_of_them(bed: BrokerBed) -> None:
    """The node shares the build, and has a fork server for each: nobody's end ends it for others."""
    agent = bed.agents["a"]

    async def owner_of(user: str) -> UnixUser:
        return UnixUser(user, 1001, 1001)

    async with bed.life() as service:
        service.environments._owner_of = owner_of
        first, other = await _submitted(service), await _submitted(service, caller=_BOB)
        await until(lambda: len(agent.builds) == 2)
        assert sorted(agent.built_for) == ["ann", "bob"]
        service.lifecycle.hear(first, Cancel("interrupted"))
        await until(lambda: sum(service.environments._waiting.values()) == 1)
        agent.has_built.set()
        await until(lambda: other.accepted)
        assert agent.stopped == []
        nodes = service.nodes.ready()
        for user in ("ann", "bob"):  # the first one's build goes on, and may end after the other's
            await until(lambda user=user: service.environments.lacking(nodes, _PLAN, user) == [])
        assert service.environments.lacking(nodes, _PLAN, "eve") == nodes
        await service.environments.build_everywhere(_PLAN)
        assert agent.built_for[2:] == [""], "an operator's build is nobody's"


@pytest.mark.asyncio
async def test_a_few_nodes_with_room_build_it_and_the_run_goes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_often(monkeypatch)
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1, c=1, d=1, e=1)
    async with bed.life() as service:
        await bed.running(service)
        (busy,) = [name for name, agent in bed.agents.items() if agent.orders]
        for agent in bed.agents.values():
            agent.has_built.set()
        record = await _submitted(service)
        await until(lambda: record.accepted)
        built = {name for name, agent in bed.agents.items() if agent.builds}
        assert len(built) == 3
        assert busy not in built
        assert next(name for name, agent in bed.agents.items() if record.run in agent.orders) in built


@pytest.mark.asyncio
async def test_another_node_with_room_builds_it_while_those_that_have_it_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_often(monkeypatch)
    monkeypatch.setattr(environment_waits, "_MOST_NODES", 1)
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1)
    async with bed.life() as service:
        for agent in bed.agents.values():
            agent.has_built.set()
        first = await _submitted(service)
        await until(lambda: first.accepted)
        (own,) = [agent for agent in bed.agents.values() if agent.builds]
        assert first.run in own.orders
        (other,) = [agent for agent in bed.agents.values() if agent is not own]
        other.has_built.clear()
        second = await _submitted(service)
        await until(lambda: other.builds)
        assert not second.accepted, "its GPU would be held while the other node builds"
        other.has_built.set()
        await until(lambda: second.accepted)
        assert second.run in other.orders


@pytest.mark.asyncio
async def test_a_run_that_is_put_back_waits_until_another_node_has_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_often(monkeypatch)
    monkeypatch.setattr(environment_waits, "_MOST_NODES", 1)
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1)
    async with bed.life() as service:
        bed.agents["a"].has_built.set()
        bed.agents["b"].has_built.set()
        record = await _submitted(service, retries=1)
        await until(lambda: record.accepted)
        (first,) = [name for name, agent in bed.agents.items() if record.run in agent.orders]
        (other,) = bed.agents.keys() - {first}
        bed.agents[other].has_built.clear()
        bed.say(service, record, "running")
        service.lifecycle.hear(record, Lost(record.attempt_id, "its node is gone", died_on=f"host-{first}"))
        await until(lambda: bed.agents[other].builds)
        await until(lambda: "building its environment" in record.view.reason)
        assert record.state is RunState.QUEUED
        bed.agents[other].has_built.set()
        await until(lambda: record.attempt == 1 and record.accepted)
        assert str(record.attempt_id) in bed.agents[other].orders


@pytest.mark.asyncio
async def test_a_node_that_could_not_start_a_run_is_asked_for_its_environment_again(bed: BrokerBed) -> None:
    async with bed.life() as service:
        (node,) = service.nodes.ready()
        builds = service.environments
        builds.note_use([node], _PLAN, "ann", is_there=True)
        assert builds.lacking([node], _PLAN, "ann") == []
        builds.note_use([node], _PLAN, "ann", is_there=False)
        assert builds.lacking([node], _PLAN, "ann") == [node]


@pytest.mark.asyncio
async def test_what_was_found_too_long_ago_to_count_is_forgotten(bed: BrokerBed) -> None:
    async with bed.life() as service:
        (node,) = service.nodes.ready()
        builds = service.environments
        builds.note_use([node], _PLAN, "ann", is_there=True)
        bed.agents["a"].has_built.set()
        builds._retention_s = 0.0
        other = msgspec.structs.replace(_PLAN, digest="b" * 32)
        assert [report.problem for report in await builds.build([node], other, "ann")] == [""]
        assert [digest for _, _, digest, _ in builds._there] == [other.digest]


@pytest.mark.asyncio
async def test_a_run_gives_its_gpu_back_where_no_fork_server_stands_in_its_environment(bed: BrokerBed) -> None:
    agent = bed.agents["a"]
    async with bed.life() as service:
        agent.has_built.set()
        first = await _submitted(service)
        await until(lambda: first.accepted)
        bed.end(service, first)
        agent.has_built.clear()
        agent.faults["start"] = ClusterError("environment 12345678 has no process yet that cells are forked from")
        second = await _submitted(service)
        await until(lambda: len(agent.builds) == 2)
        assert second.state is RunState.QUEUED
        del agent.faults["start"]
        other = await bed.running(service)
        assert other.state is RunState.RUNNING, "the only GPU is free"
        bed.end(service, other)
        agent.has_built.set()
        await until(lambda: second.accepted)


@pytest.mark.asyncio
async def test_more_packages_than_one_may_have_are_refused(bed: BrokerBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_builds, "_MOST_PACKAGES", 1)
    async with bed.life() as service:
        asked = (service.environments.check, service.environments.build_everywhere)
        for refused in (*(ask(_PLAN) for ask in asked), _submitted(service)):
            with pytest.raises(RequestError, match="at most 1 packages, and this one would have 2"):
                await refused
        assert not service.lifecycle.queue.has_waiting
        assert not bed.agents["a"].builds


@pytest.mark.asyncio
async def test_more_bytes_than_one_may_send_fail_the_run_before_a_node_gets_them(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_builds, "_MOST_SENT_BYTES", len(_WHEEL) - 1)
    async with bed.life() as service:
        service.environments.keep_wheel(_DIGEST, _WHEEL)
        record = await _submitted(service)
        await until(lambda: record.state.is_terminal)
        assert _error(record) == "host-a: the notebook's own packages are 29 B, and 28 B may be sent"
        assert (record.view.granted_at, bed.agents["a"].builds) == (None, [])


@pytest.mark.asyncio
async def test_an_environment_is_removed_by_the_beginning_of_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1)
    bed.agents["a"].environments = ["abcd" * 8, "abff" * 8]
    bed.agents["b"].environments = ["abcd" * 8]
    bed.agents["b"].uses_environments = True
    async with bed.life() as service:
        for node in service.nodes.ready():
            assert node.info is not None
            node.info = msgspec.structs.replace(node.info, packages="p")
        listed = await service.environments.list_all()
        found = [(row.digest[:4], row.host) for row in listed.environments]
        assert found == [("abcd", "host-a"), ("abcd", "host-b"), ("abff", "host-a")]
        for beginning in ("ab", "ee"):
            with pytest.raises(RequestError, match="one environment is to be removed"):
                await service.environments.remove(beginning)
        left = await service.environments.remove("abcd")
        assert [row.host for row in left.environments] == ["host-b"]
        assert bed.agents["a"].environments == ["abff" * 8]


@pytest.mark.asyncio
async def test_gc_removes_what_nobody_has_used_for_the_retention_on_that_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=1)
    for name, last in (("a", time.time()), ("b", time.time() - 100 * 86400.0)):
        bed.agents[name].environments = ["abcd" * 8]
        bed.agents[name].used_at = {"abcd" * 8: last}
    async with bed.life() as service:
        for node in service.nodes.ready():
            assert node.info is not None
            node.info = msgspec.structs.replace(node.info, packages="p")
        assert await service.environments.collect(time.time(), dry_run=True) == ["abcd" * 8]
        assert bed.agents["b"].environments == ["abcd" * 8]
        assert await service.environments.collect(time.time(), dry_run=False) == ["abcd" * 8]
        assert (bed.agents["a"].environments, bed.agents["b"].environments) == (["abcd" * 8], [])
        assert await service.environments.collect(time.time(), dry_run=False) == []


@pytest.mark.asyncio
async def test_a_wheel_is_kept_by_its_content_only(bed: BrokerBed, tmp_path: Path) -> None:
    async with bed.life() as service:
        for digest in (f"sha256:{'0' * 64}", "sha256:../../token", _DIGEST.upper()):
            with pytest.raises(RequestError, match="wheel"):
                service.environments.keep_wheel(digest, _WHEEL)
        service.environments.keep_wheel(_DIGEST, _WHEEL)
        assert [each.name for each in (tmp_path / "wheels").iterdir()] == [_DIGEST.partition(":")[2]]


@pytest.mark.asyncio
async def test_the_oldest_wheels_go_when_there_are_too_many(
    bed: BrokerBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_builds, "_MOST_WHEEL_BYTES", 20)
    async with bed.life() as service:
        for number in range(3):
            content = b"%d" % number * 15
            digest = hashlib.sha256(content).hexdigest()
            service.environments.keep_wheel(f"sha256:{digest}", content)
            os.utime(tmp_path / "wheels" / digest, (time.time() + number - 10, time.time() + number - 10))
    assert sorted(path.read_bytes()[:1] for path in (tmp_path / "wheels").iterdir()) == [b"1", b"2"]
