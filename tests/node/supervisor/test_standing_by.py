"""A supervisor and its rank before their order."""

from __future__ import annotations

import os
import socket
import sys

from jupyter_gpu_release.node.ipc.lines import AgentLine, RankLine
from jupyter_gpu_release.node.supervisor.supervisor import _pass_on_order


def test_the_number_of_a_rank_that_ended_before_its_order_is_nobody_elses_yet() -> None:
    """Its supervisor kills that number next, which may not be another process's by then."""
    rank = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], {})
    os.waitid(os.P_PID, rank, os.WEXITED | os.WNOWAIT)
    lines, wake = [socket.socketpair() for _ in range(2)], os.pipe()
    agent, rank_line = AgentLine(lines[0][0]), RankLine(lines[1][0], -1)
    assert _pass_on_order(agent, rank_line, wake[0], rank) is None
    assert os.waitpid(rank, os.WNOHANG) == (rank, 0), "it has not been collected"
    for sock in (sock for pair in lines for sock in pair):
        sock.close()
    for fd in wake:
        os.close(fd)
