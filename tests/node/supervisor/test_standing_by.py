"""A supervisor and its rank before their order."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
from pathlib import Path

import pytest

from jupyter_gpu_release.node.ipc.lines import AgentLine, RankLine
from jupyter_gpu_release.node.supervisor import agent_connection
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


def test_descriptors_of_a_pair_that_nobody_waits_for_any_more_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gang's grant was withdrawn at the moment in which the pair came."""
    ends = list[int]()

    async def ask() -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "server"))
            server.listen()
            asked = asyncio.create_task(agent_connection.fork_pair(str(tmp_path / "server"), 1 << 16, 0))
            connection = (await asyncio.get_running_loop().run_in_executor(None, server.accept))[0]
            waiting = asyncio.Event()

            async def never(**_: object) -> None:
                waiting.set()
                await asyncio.sleep(3600)

            monkeypatch.setattr(asyncio, "open_unix_connection", never)
            monkeypatch.setattr(agent_connection, "_checked", lambda *_: None)  # pipes tell when they are closed
            with connection:
                pipes = [os.pipe() for _ in range(2)]
                socket.send_fds(connection, [b"hello"], [writing for _, writing in pipes])
                for reading, writing in pipes:
                    ends.append(reading)
                    os.close(writing)
                await waiting.wait()
                asked.cancel()
                await asyncio.wait([asked])

    asyncio.run(ask())
    for end in ends:
        assert select.select([end], [], [], 0)[0], "nobody has the other end open"
        os.close(end)
