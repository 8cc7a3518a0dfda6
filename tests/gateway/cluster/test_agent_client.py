"""One contract between gateway and node agents: the agent and its stand-ins keep it, and nobody calls past it."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from broker_bed import PretendedAgent

import jupyter_gpu_release
from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.actor import Gateway
from jupyter_gpu_release.gateway.cluster import agents
from jupyter_gpu_release.gateway.cluster.agents import AgentFactory
from jupyter_gpu_release.gateway.cluster.nodes import Node, NodeListener, NodeTable
from jupyter_gpu_release.gateway.cluster.ray_calls import RayCalls
from jupyter_gpu_release.node.agent.agent import NodeAgent
from jupyter_gpu_release.node.agent.recorder import Reporter
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.protocol.node import (
    AgentConfig,
    AttemptId,
    GatewayApi,
    NodeAgentApi,
    NodeInfo,
    NodeReport,
    RunPhase,
    StartOrder,
)
from jupyter_gpu_release.protocol.wire import encode, unpack

PACKAGE = Path(jupyter_gpu_release.__file__).parent


def _stand_in() -> type[NodeAgentApi]:
    """From its file: the gateway's own tests have Ray import it in another process."""
    spec = importlib.util.spec_from_file_location("fake_agent", Path(__file__).parents[1] / "fake_agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.StandInAgent


def _calls(api: type) -> dict[str, Callable[..., Any]]:
    return {name: method for name, method in vars(api).items() if name in api.__abstractmethods__}


@pytest.mark.parametrize("agent", [NodeAgent, _stand_in()])
def test_the_agent_and_its_stand_in_take_the_same_calls(agent: type[NodeAgentApi]) -> None:
    calls = _calls(NodeAgentApi)
    assert len(calls) > 20
    made = {name: method for name, method in vars(agent).items() if inspect.iscoroutinefunction(method)}
    assert {name for name in made if not name.startswith("_")} == calls.keys()
    for name, method in calls.items():
        assert inspect.signature(made[name]) == inspect.signature(method), name


def test_the_gateway_takes_what_agents_send() -> None:
    for name, method in _calls(GatewayApi).items():
        assert inspect.signature(vars(Gateway)[name]) == inspect.signature(method)


def test_the_pretended_agents_of_the_broker_bed_answer_to_nothing_else() -> None:
    made = {name[3:]: method for name, method in vars(PretendedAgent).items() if name.startswith("do_")}
    calls = _calls(NodeAgentApi)
    assert made.keys() <= calls.keys()
    for name in made.keys() & calls.keys():
        assert len(inspect.signature(made[name]).parameters) == len(inspect.signature(calls[name]).parameters), name


def test_no_call_is_made_by_a_name_in_a_string() -> None:
    """``mypy`` checks the arguments of the two places that turn a method of the contract into a call of Ray's."""
    by_name = re.compile(rf"getattr\(.*\)\.remote\(|\.({'|'.join(_calls(NodeAgentApi))})\.remote\(")
    found = {
        str(path.relative_to(PACKAGE)): match.group()
        for path in PACKAGE.rglob("*.py")
        for match in by_name.finditer(path.read_text())
    }
    assert found == {
        "gateway/cluster/agent_client.py": "getattr(self._handle, method.__name__).remote(",
        "node/agent/recorder.py": "getattr(self._gateway, method.__name__).remote(",
    }


class _Nobody(NodeListener):
    """Hears of nodes, and does nothing."""


class _Broken:
    """Ray's handle of an agent whose calls all fail in one way."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _name: str) -> Any:
        return SimpleNamespace(remote=self._fail)

    async def _fail(self, *_arguments: object) -> None:
        raise self._error


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "is_reachable", "is_there"),
    [
        (ray.exceptions.ActorDiedError(), False, False),
        (ray.exceptions.RayActorError(), False, True),
        (ray.exceptions.RaySystemError("its answer is an error"), True, True),
    ],
)
async def test_an_agent_that_cannot_be_reached_takes_no_runs_and_a_dead_one_is_made_anew(
    error: Exception, is_reachable: bool, is_there: bool
) -> None:
    nodes = NodeTable("", _Nobody())
    nodes.refresh([{"NodeID": "n", "NodeManagerHostname": "host", "Alive": True, "Resources": {"GPU": 1}}])
    (node,) = nodes.alive()
    node.agent, node.info = _Broken(error), NodeInfo("n", "host", "first", python="3.11", version="1")
    with pytest.raises(ClusterError, match="the agent of node n failed"):
        await nodes.agent("n").has_begun(AttemptId("r", 0))
    assert (node.reachable, node.agent is not None) == (is_reachable, is_there)
    if not is_there:
        with pytest.raises(ClusterError, match="node n has no agent"):
            nodes.agent("n")


def test_a_node_that_ray_has_forgotten_is_forgotten() -> None:
    nodes = NodeTable("", _Nobody())
    entries = [{"NodeID": n, "NodeManagerHostname": "host", "Alive": True, "Resources": {}} for n in "ab"]
    nodes.refresh(entries)
    entries[0]["Alive"] = False
    assert [node.node for node in nodes.refresh(entries)] == ["a"]
    assert nodes.find("a") is not None  # what ran there is being looked after
    assert nodes.refresh(entries[1:]) == []
    assert nodes.find("a") is None
    assert [node.node for node in nodes.alive()] == ["b"]


@pytest.mark.asyncio
async def test_a_call_to_an_earlier_life_says_nothing_of_the_agent_that_is_there_now() -> None:
    nodes = NodeTable("", _Nobody())
    nodes.refresh([{"NodeID": "n", "NodeManagerHostname": "host", "Alive": True, "Resources": {}}])
    (node,) = nodes.alive()
    node.agent, node.info = _Broken(ray.exceptions.RayActorError()), NodeInfo("n", "host", "1", "3.11", "1")
    asked = nodes.agent("n").start(StartOrder("r", b"", "/store/r"))
    node.info = NodeInfo("n", "host", "2", "3.11", "1")
    with pytest.raises(ClusterError):
        await asked.answer()
    assert node.reachable


class _Api(GatewayApi):
    """Takes one report; of the others its answer never arrives."""

    def __init__(self) -> None:
        self.heard: list[float] = []

    async def node_up(self, info: Any) -> None:
        raise NotImplementedError

    async def node_report(self, report: Any) -> None:
        self.heard.append(_told_at(report))
        if len(self.heard) > 1:
            await asyncio.Event().wait()


def _told_at(report: Any) -> float:
    (message,) = unpack(report, NodeReport).messages
    assert isinstance(message, RunPhase)
    return message.at_s


def _one_node(agent: Any) -> tuple[NodeTable, Node]:
    nodes = NodeTable("", _Nobody())
    nodes.refresh([{"NodeID": "n", "NodeManagerHostname": "host", "Alive": True, "Resources": {"GPU": 1}}])
    (node,) = nodes.alive()
    node.agent, node.info = agent, NodeInfo("n", "host", "1", "3", "1")
    return nodes, node


@pytest.mark.asyncio
async def test_agent_and_gateway_of_one_host_call_each_other_past_ray_until_one_of_them_ends(tmp_path: Path) -> None:
    api, by_ray = _Api(), asyncio.Queue[float]()
    nodes, node = _one_node(_Broken(ray.exceptions.RaySystemError("through Ray")))
    config = GatewayConfig(str(tmp_path), str(tmp_path), "", str(tmp_path), "")
    calls, asked = RayCalls(), asyncio.Event()
    factory = AgentFactory(config, calls, nodes, api)
    await factory.connect(node)
    assert node.connection is None, "one on another host"

    async def has_begun(run: str) -> bool:  # an agent from before `start --upgrade`, as its NodeInfo says
        if run == "waits":
            asked.set()
            await asyncio.Event().wait()
        return True

    async def node_report(report: Any) -> None:
        by_ray.put_nowait(_told_at(report))

    reporter = Reporter(AgentConfig("store", str(tmp_path)), "n", "1")
    reporter._gateway = SimpleNamespace(node_report=SimpleNamespace(remote=node_report))
    await reporter.listen(SimpleNamespace(has_begun=has_begun))  # type: ignore[arg-type]
    sending = asyncio.create_task(reporter.send_forever())
    await factory.connect(node)
    assert await nodes.agent("n").has_begun(AttemptId("r", 0))
    for at_s in (1.0, 2.0):
        reporter.report(RunPhase(AttemptId("r", 0), "released", at_s))
        while api.heard[-1:] != [at_s]:
            await asyncio.sleep(0)
    waits = asyncio.create_task(nodes.agent("n").has_begun(AttemptId("waits", 0)))
    await asked.wait()
    assert by_ray.empty()
    assert node.connection is not None
    node.connection.close()
    with pytest.raises(ClusterError, match="the agent of node n failed: the connection was closed"):
        await waits
    assert not node.reachable
    with pytest.raises(ClusterError, match="through Ray"):
        await nodes.agent("n").has_begun(AttemptId("r", 0))
    assert await by_ray.get() == 2.0, "what was not acknowledged is sent again"
    sending.cancel()
    calls.close()
    assert reporter._server is not None
    reporter._server.close()


class _Agent:
    """Answers by its connection, but for its first call, and through Ray, for which this is the actor's handle."""

    def __init__(self, life: str) -> None:
        self.life = life
        self.asked: list[str] = []
        self.has_first = asyncio.Event()

    async def has_begun(self, run: str) -> bool:
        self.asked.append(run)
        if not self.has_first.is_set():
            self.has_first.set()
            await asyncio.Event().wait()
        return True

    @property
    def handle(self) -> Any:
        async def hello() -> bytes:
            return encode(NodeInfo("n", "host", self.life, "3", "1"))

        async def has_begun(run: str) -> bool:
            self.asked.append(f"{run} through Ray")
            return True

        return SimpleNamespace(hello=SimpleNamespace(remote=hello), has_begun=SimpleNamespace(remote=has_begun))


@pytest.mark.asyncio
@pytest.mark.parametrize("life", ["1", "2"])
async def test_a_connection_that_breaks_is_made_again_and_only_the_life_that_was_called_gets_the_call_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: str
) -> None:
    monkeypatch.setattr(agents, "_LASTS_S", 0.0)
    agent, calls = _Agent(life), RayCalls()
    nodes, node = _one_node(agent.handle)
    reporter = Reporter(AgentConfig("store", str(tmp_path)), "n", "1")
    await reporter.listen(agent)  # type: ignore[arg-type]
    factory = AgentFactory(GatewayConfig(str(tmp_path), str(tmp_path), "", str(tmp_path), ""), calls, nodes, _Api())
    await factory.connect(node)
    asked = asyncio.create_task(nodes.agent("n").has_begun(AttemptId("r", 0)))
    await agent.has_first.wait()
    first, its = node.connection, reporter._connection
    assert its is not None
    assert its._transport is not None
    its._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    if life == "1":
        assert await asked
        assert agent.asked == ["r", "r through Ray"]
    else:
        with pytest.raises(ClusterError, match="the connection was closed"):
            await asked
        assert agent.asked == ["r"], "a later life must not get it"
    assert node.reachable == (life == "1")
    async with asyncio.timeout(30):
        while node.connection is first or not reporter._connection.is_open:  # type: ignore[union-attr]
            await asyncio.sleep(0)
    assert await nodes.agent("n").has_begun(AttemptId("s", 0))
    assert agent.asked[-1] == "s"
    calls.close()
    assert node.connection is not None
    node.connection.close()
    assert reporter._server is not None
    reporter._server.close()
