"""Nodes that are asked together: a slow one holds up nobody else."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster.agents import forget_runs
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.cluster.nodes import NodeTable
from jupyter_gpu_release.gateway.dispatch import gangs
from jupyter_gpu_release.protocol.node import AttemptId, StartOrder
from jupyter_gpu_release.scheduling.decisions import Slot

_ONE, _TWO = AttemptId("1", 0), AttemptId("2", 1)


class Agents:
    """Two agents: each answers when the other has been asked as well; the first one then fails where it is told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked: dict[str, list[str]] = {}
        self._both = asyncio.Barrier(2)
        self._fails = fails

    def agent(self, node: str) -> Any:
        return _Agent(self, node)

    async def answer(self, node: str, what: list[str]) -> None:
        self.asked[node] = what
        await self._both.wait()
        if self._fails and node == "a":
            raise ClusterError("node a does not answer")


class _Agent:
    def __init__(self, all_of_them: Agents, node: str) -> None:
        self._all, self._node = all_of_them, node

    async def forget_runs(self, runs: list[str]) -> None:
        await self._all.answer(self._node, runs)

    async def grant(self, run: str, gpu_ids: list[str]) -> None:
        await self._all.answer(self._node, gpu_ids)


@pytest.mark.asyncio
async def test_nodes_forget_runs_at_the_same_time_and_one_that_fails_keeps_no_other_from_it() -> None:
    agents = Agents(fails=True)
    told = forget_runs(cast(NodeTable, agents), {"a": [_ONE], "b": [_ONE, _TWO], "c": []})
    await asyncio.wait_for(told, 30)
    assert agents.asked == {"a": [_ONE], "b": [_ONE, _TWO]}


@pytest.mark.asyncio
async def test_the_nodes_of_a_gang_hear_of_their_gpus_at_the_same_time() -> None:
    agents, lease = Agents(), Lease("lease", AttemptId("run", 0), (Slot("a", 1), Slot("b", 1)))
    lease.gpu_ids = (("0",), ("3",))
    await asyncio.wait_for(
        gangs.grant(cast(NodeTable, agents), lease, StartOrder(run="run", payload=b"", folder="f")), 30
    )
    assert agents.asked == {"a": lease.ids_on("a"), "b": lease.ids_on("b")}
