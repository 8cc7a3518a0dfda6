"""Agents are made on all nodes at the same time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.gateway.cluster.agents import AgentFactory
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
