"""``GET /v1/checks``: however many ask, the nodes look once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.gateway.cluster import node_checks
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
async def test_who_asks_meanwhile_or_just_after_gets_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: Any = _Nodes()
    checker = NodeChecker(nodes, "/store")
    first = asyncio.ensure_future(checker.check())
    left = asyncio.ensure_future(checker.check())
    await asyncio.sleep(0)
    left.cancel()
    answers = [await first, await checker.check(), await checker.check()]
    assert nodes.looks == 1
    assert all(answer is answers[0] for answer in answers)
    monkeypatch.setattr(node_checks, "_FRESH_S", 0.0)
    checker._fresh_until_s = 0.0
    nodes.is_broken = True
    with pytest.raises(RuntimeError):
        await checker.check()
    nodes.is_broken = False
    assert (await checker.check()).store == "/store", "a failure is not kept"
    assert nodes.looks == 3
