"""Parts of a GPU whose processes are killed: a part is free when its own processes are gone, and the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import psutil
import pytest
from node_bed import Node, Run, is_running

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.host.gpu_reader import GpuReader
from jupyter_gpu_release.node.agent import gpu_use, part_use
from jupyter_gpu_release.node.agent.gpu_use import UseMeter
from jupyter_gpu_release.node.supervisor.agent_connection import Hello, Pair
from jupyter_gpu_release.protocol.node import GpuInfo

_GIB = 1 << 30
#: a child that has left its parent and its session, as a data loader's server may
_CELL = """
import os, signal
if not (first := os.fork()):
    os.setsid()
    if second := os.fork():
        os._exit(0)
    print("child", os.getpid(), flush=True)
    signal.pause()
os.waitpid(first, 0)
print("rank", os.getpid(), flush=True)
signal.pause()
"""


class _Driver:
    """One GPU of 80 GiB, and the processes that it shows there, which it may do for a while after their ends."""

    def __init__(self) -> None:
        self.used: dict[int, int] = {}
        self.problem = ""

    def unread(self) -> list[GpuInfo]:
        return self.gpus()

    def gpus(self) -> list[GpuInfo]:
        return [GpuInfo("0", "GPU-0", "H100", 80 * _GIB, sum(self.used.values()), 0.5)]

    def memory_by_pid(self, _name: str) -> dict[int, int]:
        return dict(self.used)

    def driver_version(self) -> str:
        return "1"

    driver_cuda = driver_version


@pytest.fixture
def driver(node: Node, monkeypatch: pytest.MonkeyPatch) -> _Driver:
    shown = _Driver()
    monkeypatch.setattr(node, "meter", UseMeter(GpuReader(cast(Any, shown))))
    monkeypatch.setattr(gpu_use, "CLEAR_S", 3600.0)
    return shown


@pytest.fixture
def half(node: Node, driver: _Driver) -> Iterator[Callable[[], Run]]:
    """Start a run with half of the GPU."""
    runs: list[Run] = []

    def start() -> Run:
        runs.append(node.start(_CELL, gpus=0.5, part_bytes=40 * _GIB, simulated=False))
        runs[-1].wait_for(lambda run: is_running(run) and run.text().count("\n") == 2)
        return runs[-1]

    yield start
    driver.used = {}
    for run in runs:
        run.signal("kill", "cancelled")
        run.wait()


def _pids(run: Run) -> dict[str, int]:
    return {who: int(pid) for who, pid in (line.split() for line in run.text().splitlines())}


@pytest.mark.parametrize("killed", ["rank", "supervisor"])
def test_a_part_is_free_when_its_own_processes_are_gone_and_its_neighbour_goes_on(
    driver: _Driver, half: Callable[[], Run], until: Any, killed: str
) -> None:
    first, second = half(), half()
    ours, theirs = _pids(first), _pids(second)
    driver.used = {pid: _GIB for pids in (ours, theirs) for pid in pids.values()}
    for run in (first, second):
        until(lambda run=run: run.on_node._part.peak_bytes == 2 * _GIB, "both processes of each to be counted")
    supervisor = psutil.Process(ours["rank"]).parent()
    assert supervisor is not None
    os.kill(ours["rank"] if killed == "rank" else supervisor.pid, signal.SIGKILL)
    for pid in ours.values():
        assert process_control.wait_until_gone(pid, 60)
    shown = first.node.meter.samples_taken(second.order.attempt_id)
    until(lambda: first.node.meter.samples_taken(second.order.attempt_id) > shown + 1, "the driver to be looked at")
    assert first.phase("released") is None, "the driver still shows what it had"
    driver.used = dict.fromkeys(theirs.values(), _GIB)
    use = first.wait().gpu_use
    assert use is not None
    assert (use.peak_memory_bytes, use.left_bytes) == (2 * _GIB, 0)
    assert second.on_node._part.peak_bytes == 2 * _GIB
    assert not first.text("stderr") + second.text("stderr")
    assert second.phase("ended") is None


def test_more_than_its_part_is_warned_of_then_interrupted_with_what_came_of_it(
    driver: _Driver, half: Callable[[], Run], until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names come back; the neighbour hears nothing of it."""
    monkeypatch.setattr(part_use, "OVER_S", 0.2)
    first, second = half(), half()
    ours, theirs = _pids(first)["rank"], _pids(second)["rank"]
    driver.used = {ours: 60 * _GIB, theirs: _GIB}
    until(lambda: first.phase("ended") is not None, "the interrupt")
    driver.used = {theirs: _GIB}
    outcome = first.wait()
    assert outcome.status == "interrupted"
    assert "the cell uses 60 GiB of the GPU, and its part has 40 GiB: it is interrupted in 0.2 s" in first.text(
        "stderr"
    )
    assert [note for note in outcome.notes if note.startswith("interrupted: it used 60 GiB of the GPU for 0.2 s")]
    assert "first" in [value.name for value in outcome.results]
    assert second.phase("ended") is None
    assert not second.text("stderr")


def test_a_rank_whose_supervisor_is_gone_has_nothing_of_its_new_parent() -> None:
    """The fork server inherits it, and has all the neighbours as well."""
    with ExitStack() as living:
        neighbour = living.enter_context(subprocess.Popen(["sleep", "60"]))
        rank = living.enter_context(subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE))
        assert rank.stdout is not None
        child = int(rank.stdout.readline())
        with subprocess.Popen(["true"]) as gone:
            pass
        of_pair = [_pair(rank.pid, supervisor).processes() for supervisor in (gone.pid, os.getpid())]
        process_control.kill_each((neighbour.pid, child, rank.pid))
    assert of_pair[0] == {rank.pid, child}
    assert of_pair[1] >= {rank.pid, child, neighbour.pid}


def _pair(rank: int, supervisor: int) -> Pair:
    return Pair(cast(Any, None), cast(Any, None), Hello(rank, "mark", supervisor), -1, -1)
