"""Agents are made on all nodes at the same time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster.agents import AgentFactory, missing_imports
from jupyter_gpu_release.gateway.cluster.ray_calls import RayCalls


@pytest.mark.asyncio
async def test_nodes_on_which_it_takes_long_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """None has its agent before all have been asked; one that fails stops no other."""
    asked = threading.Barrier(3, timeout=60)

    def make(_self: AgentFactory, node: Any) -> str:
        asked.wait()
        if node.host == "bad":
            raise ImportError("no such module")
        return f"agent of {node.host}"

    monkeypatch.setattr(AgentFactory, "_find_or_create", make)
    made = [SimpleNamespace(host=host, agent=None, is_asleep=False, problem="") for host in ("a", "bad", "c")]
    has_one = SimpleNamespace(host="d", agent="agent of d", problem="")
    calls = RayCalls()
    nodes: Any = SimpleNamespace(alive=lambda: [*made, has_one])
    config: Any = None
    await AgentFactory(config, calls, nodes).ensure_agents()
    calls.close()
    assert [node.agent for node in made] == ["agent of a", None, "agent of c"]
    assert "no such module" in made[1].problem


class _Agent:
    """Knows what it lacks; ``asked``: what it was asked for."""

    def __init__(self, *lacks: str) -> None:
        self.lacks = lacks
        self.asked: list[list[str]] = []
        self.is_silent = False

    async def missing_imports(self, names: list[str]) -> list[str]:
        self.asked.append(names)
        if self.is_silent:
            raise ClusterError("it does not answer")
        return [name for name in names if name in self.lacks]


@pytest.mark.asyncio
async def test_a_package_is_missing_where_no_node_has_it_and_what_one_has_is_not_asked_again() -> None:
    agents = {"a": _Agent("x", "y"), "b": _Agent("y", "z")}
    ready = [SimpleNamespace(node=name, known_imports=set(), reachable=True) for name in agents]
    nodes: Any = SimpleNamespace(ready=lambda: ready, agent=agents.__getitem__)
    for _ in range(2):
        assert await missing_imports(nodes, ["x", "y", "z"]) == ["y"]
    assert agents["a"].asked == [["x", "y", "z"], ["x", "y"]]
    agents["b"].is_silent = True
    assert await missing_imports(nodes, ["y"]) == []
    ready[1].reachable = False
    assert await missing_imports(nodes, ["y"]) == []
    assert len(agents["b"].asked) == 3
    ready.clear()
    assert await missing_imports(nodes, ["y"]) == []
