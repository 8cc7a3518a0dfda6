"""When a node agent counts as there."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.reconcile import node_liveness
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.node import NodeInfo


def info(life: str) -> NodeInfo:
    return NodeInfo("n1", "host", life, python="3.11", version="0.1.0")


class Calls:
    """An agent that cannot be called the first times, as Ray has it until it tells of the agent's new life."""

    def __init__(self, failing: int, life: str) -> None:
        self.left = failing
        self.life = life

    def agent(self, node: str) -> Calls:
        assert node == "n1"
        return self

    async def hello(self, _timeout_s: float) -> NodeInfo:
        if self.left:
            self.left -= 1
            raise ClusterError("the agent of node n1 failed: the actor is restarting")
        return info(self.life)

    async def reach(self, life: str) -> bool:
        return await node_liveness._is_callable(
            cast(GatewayService, cast(Any, SimpleNamespace(nodes=self))), info(life)
        )


@pytest.mark.asyncio
async def test_an_agent_is_there_when_calls_reach_it() -> None:
    """A run ordered before that would be lost: nobody could tell whether it began."""
    calls = Calls(3, "second")
    assert await calls.reach("second")
    assert calls.left == 0


@pytest.mark.asyncio
async def test_an_agent_whose_place_another_took_is_not_taken_up() -> None:
    assert not await Calls(1, "third").reach("second")


@pytest.mark.asyncio
async def test_an_agent_that_cannot_be_called_is_asked_to_say_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_liveness, "_CALLABLE_S", 0.05)
    with pytest.raises(ClusterError, match="restarting") as caught:
        await Calls(10**6, "second").reach("second")
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), ClusterError)  # Ray takes it to the agent
