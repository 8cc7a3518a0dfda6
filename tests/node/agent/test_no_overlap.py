"""A GPU is nobody else's before the last process of the cell that held it is gone, whatever was killed."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from node_bed import Node, Run
from soak import sized

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.protocol.node import RunPhase

_PIDS = "print(os.getpid(), child, os.getppid(), flush=True)\ntime.sleep(1000)"
#: a child that leaves its group, closes all it has and ignores what it can
_CHILD = """
import os, signal, time
child = os.fork()
if child == 0:
    os.setsid()
    os.closerange(0, 256)
    time.sleep(1000)
"""


def _holds(mib: int) -> str:
    return f"{_CHILD}resident = bytearray(b'1') * ({mib} << 20)\n{_PIDS}"


class _AtRelease:
    """Which of ``pids`` lived when the node said that the GPUs are free."""

    def __init__(self, run: Run) -> None:
        self.pids: list[int] = []
        self.alive: list[int] | None = None
        self._tell = run.on_node._tell_gateway
        run.on_node._tell_gateway = self._look

    def _look(self, message: object) -> None:
        if isinstance(message, RunPhase) and message.phase == "released":
            self.alive = [pid for pid in self.pids if psutil.pid_exists(pid) and not process_control.is_gone(pid)]
        self._tell(message)  # type: ignore[arg-type]


def _begun(node: Node, mib: int) -> tuple[Run, _AtRelease, int]:
    run = node.start(_holds(mib), gpus=1)
    seen = _AtRelease(run)
    run.wait_for(lambda r: r.text().endswith("\n"))
    rank, child, supervisor = map(int, run.text().split())
    seen.pids = [rank, child]
    return run, seen, supervisor


@pytest.mark.soak
def test_a_killed_supervisors_gpus_are_free_when_its_rank_is_gone(node: Node) -> None:
    for _ in range(sized(1, 100)):
        run, seen, supervisor = _begun(node, mib=sized(300, 5 << 10))
        os.kill(supervisor, signal.SIGKILL)
        assert run.wait().status == "lost"
        assert seen.alive == []


def test_nobody_else_need_look_after_what_a_killed_supervisor_leaves(node: Node) -> None:
    """Neither the fork server, which is stopped, nor the rank's own death, which its child does not follow."""
    run, seen, supervisor = _begun(node, 1)
    server = node.call(node.servers.start_server()).pid
    os.kill(server, signal.SIGSTOP)
    try:
        os.kill(supervisor, signal.SIGKILL)
        run.wait()
    finally:
        os.kill(server, signal.SIGCONT)
    assert seen.alive == []
