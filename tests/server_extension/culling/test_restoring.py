"""GPU memory that a suspended kernel gets back when a cell begins: a failure is tried again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.server_extension.culling.config import GpuCuller
from jupyter_gpu_release.server_extension.culling.monitor import Monitor


class _Actor:
    """The GPU is full the first time."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    async def restore(self, pids: list[int]) -> None:
        self.asked.append(pids)
        if len(self.asked) == 1:
            raise ClusterError("out of memory")


@pytest.mark.asyncio
async def test_the_next_cell_tries_again_where_memory_could_not_be_given_back() -> None:
    actor, done = _Actor(), list[bool]()
    record = SimpleNamespace(policy=lambda _at_s, **facts: done.append(facts["done"]))
    nothing: Any = SimpleNamespace(last=None)
    parts: Any = (nothing, nothing, nothing, actor, record)
    monitor = Monitor(GpuCuller(), *parts, {})
    monitor.tracks["k"] = track = SimpleNamespace(suspended=True)  # type: ignore[assignment]
    monitor._suspended["k"] = [7, 8]
    for is_suspended in (True, False):
        monitor.on_execute("k")
        await asyncio.gather(*monitor._acting.values())
        assert track.suspended is is_suspended
    monitor.on_execute("k")
    assert (actor.asked, done) == ([[7, 8], [7, 8]], [False, True])
