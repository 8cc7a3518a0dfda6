"""Ranks that a node lends to a gang that another node leads (here both are this one)."""

from __future__ import annotations

import asyncio
import os
import re
import signal

import psutil
from node_bed import Node, Run

from jupyter_gpu_release.core.node_messages import GangOrder, JoinOrder, Member
from jupyter_gpu_release.node import process
from jupyter_gpu_release.node.lending import Lending, Loans

_SECRET = "s" * 64
#: the lent rank's memory is slow to go
_CELL = (
    "import os, time\nfrom jupyter_gpu_release import ranks\n"
    "held = b'x' * (1 << 30) if ranks.rank else b''\n"
    "pids = [ranks.broadcast(os.getpid(), src=rank) for rank in range(2)]\n"
    "print('pids', *pids, flush=True)\ntime.sleep(1000)"
)


def _pids(run: Run) -> list[int]:
    found = re.search(r"^pids (\d+) (\d+)\n", run.text(), re.MULTILINE)
    return [int(found[1]), int(found[2])] if found else []


def test_a_node_has_its_gpus_back_when_the_rank_of_a_killed_supervisor_is_gone(node: Node) -> None:
    gang = GangOrder(members=[Member("second", "second", 1)], secret=_SECRET, is_gang=True)
    run = node.start(_CELL, gang=gang)
    carried: list[asyncio.Task[None]] = []
    lending: list[Lending] = []

    async def lend() -> Loans:
        lending.append(Lending("127.0.0.1", lambda _: run.on_node))
        address, port = await lending[0].listen()
        loans = Loans(node.servers, "127.0.0.1")
        loan = loans.begin(JoinOrder(run.order.run, "second", 1, 1, address, port, _SECRET))
        assert loan is not None
        loan.grant(["1"])
        carried.append(node.loop.create_task(loans.carry_out(run.order.run, loan)))
        return loans

    loans = node.call(lend())
    run.wait_for(_pids)
    lent = _pids(run)[1]

    async def kill_and_leave() -> bool:
        supervisor = psutil.Process(lent).ppid()
        os.kill(supervisor, signal.SIGKILL)
        while not process.is_gone(supervisor):
            await asyncio.sleep(0)
        for _ in range(20):  # the line's end is noticed, and the rank is being ended
            await asyncio.sleep(0)
        await loans.leave(run.order.run)
        return process.is_gone(lent)

    assert node.call(kill_and_leave())
    assert run.wait().status != "ok"
    node.loop.call_soon_threadsafe(lending[0].close)
