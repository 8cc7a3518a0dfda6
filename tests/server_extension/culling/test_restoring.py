"""GPU memory that a suspended kernel gets back when a cell begins: a failure is tried again, the dead get nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.server_extension.culling.config import GpuCuller
from jupyter_gpu_release.server_extension.culling.idle_tracker import Track
from jupyter_gpu_release.server_extension.culling.monitor import Monitor
from jupyter_gpu_release.server_extension.monitoring.kernels import Conversation
from jupyter_gpu_release.server_extension.monitoring.sampling import Sample


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


@pytest.mark.asyncio
async def test_processes_that_ended_while_they_were_suspended_are_forgotten() -> None:
    """A kernel that is restarted holds memory again as others do."""
    with subprocess.Popen(["true"]) as ended:
        pass
    kernels = {
        name: SimpleNamespace(conversation=Conversation(0.0), path="", name="", manager=None, execution_state="idle")
        for name in ("restarted", "half")
    }
    watches: Any = SimpleNamespace(watches=kernels, refresh=lambda: asyncio.sleep(0), processes=list, terminals=dict)
    samples: Any = SimpleNamespace(last=Sample(0.0), next=lambda *_: asyncio.sleep(0, Sample(1.0)), problem="")
    gateway: Any = SimpleNamespace(status=None, remembered=None)
    record: Any = SimpleNamespace(changed=lambda _what: None)
    actor: Any = _Actor()
    monitor = Monitor(GpuCuller(), watches, samples, gateway, actor, record, {})
    for name, pids in {"restarted": [ended.pid], "half": [os.getpid(), ended.pid]}.items():
        monitor.tracks[name] = Track(name, "kernel", 0.0, suspended=True)
        monitor._suspended[name] = pids
    await monitor.take_sample()
    assert [monitor.tracks[name].suspended for name in kernels] == [False, True]
    for name in kernels:
        monitor.on_execute(name)
    await asyncio.gather(*monitor._acting.values(), return_exceptions=True)
    assert actor.asked == [[os.getpid()]]
