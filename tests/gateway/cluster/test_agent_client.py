"""One contract between gateway and node agents: the agent and its stand-ins keep it, and nobody calls past it."""

from __future__ import annotations

import importlib.util
import inspect
import re
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
from jupyter_gpu_release.gateway.cluster.nodes import NodeListener, NodeTable
from jupyter_gpu_release.node.agent.agent import NodeAgent
from jupyter_gpu_release.protocol.node import GatewayApi, NodeAgentApi, NodeInfo, StartOrder

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
        await nodes.agent("n").has_begun("r")
    assert (node.reachable, node.agent is not None) == (is_reachable, is_there)
    if not is_there:
        with pytest.raises(ClusterError, match="node n has no agent"):
            nodes.agent("n")


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
