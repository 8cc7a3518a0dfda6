"""One contract between gateway and node agents: the agent and its stand-ins keep it, and nobody calls past it."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_bed import PretendedAgent

import jupyter_gpu_release
from jupyter_gpu_release.gateway.actor import Gateway
from jupyter_gpu_release.node.agent.agent import NodeAgent
from jupyter_gpu_release.protocol.node import GatewayApi, NodeAgentApi

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
