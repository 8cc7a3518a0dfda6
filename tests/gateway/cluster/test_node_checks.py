"""``GET /v1/checks``: however many ask at once, the nodes look once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.gateway.cluster.node_checks import NodeChecker


class _Nodes:
    """No node; it counts who asks for them."""

    looks = 0
    is_broken = False

    def alive(self) -> list[Any]:
        self.looks += 1
        if self.is_broken:
            raise RuntimeError("Ray is gone")
        return [SimpleNamespace(is_asleep=True)]


@pytest.mark.asyncio
async def test_who_asks_meanwhile_gets_the_same_answer() -> None:
    nodes: Any = _Nodes()
    checker = NodeChecker(nodes, "/store")
    first, left, last = (asyncio.ensure_future(checker.check()) for _ in range(3))
    await asyncio.sleep(0)
    left.cancel()
    assert await first is await last
    assert nodes.looks == 1


@pytest.mark.asyncio
async def test_who_asks_afterwards_has_the_nodes_look_again() -> None:
    """An admin has changed something in between."""
    nodes: Any = _Nodes()
    checker = NodeChecker(nodes, "/store")
    nodes.is_broken = True
    with pytest.raises(RuntimeError):
        await checker.check()
    nodes.is_broken = False
    assert (await checker.check()).store == "/store", "a failure is not kept"
    await checker.check()
    assert nodes.looks == 3
