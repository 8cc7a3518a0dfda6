"""Ranks that a node lends to a gang that another node leads (here both are this one)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from node_bed import Node, Run, is_running

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.host.gpu_reader import GpuReader
from jupyter_gpu_release.host.gpus import Nvml
from jupyter_gpu_release.node.agent import remote_ranks
from jupyter_gpu_release.node.agent.fork_server import ForkServer
from jupyter_gpu_release.node.agent.gpu_use import UseMeter
from jupyter_gpu_release.node.agent.remote_ranks import RankForwarders, RemoteRankListener
from jupyter_gpu_release.node.supervisor.agent_connection import Pair
from jupyter_gpu_release.protocol.node import AttemptId, GangOrder, JoinOrder, Member, StartOrder

Until = Callable[[Callable[[], object], str], None]

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


class Lender:
    """Lends a rank to ``run``, as the agent of a second node would."""

    def __init__(self, node: Node, run: Run) -> None:
        self._node = node
        self._run = run.order.run
        self.lead = RemoteRankListener("127.0.0.1", lambda _: run.on_node)
        self._tasks: list[asyncio.Task[None]] = []
        self.forwarders = RankForwarders(lambda _digest, _owner: node.servers, "127.0.0.1")

    async def lend(self) -> None:
        address, port = await self.lead.listen()
        forwarder = self.forwarders.new_forwarder(JoinOrder(self._run, "second", 1, 1, address, port, _SECRET))
        assert forwarder is not None
        forwarder.grant(["1"])
        self._tasks.append(self._node.loop.create_task(self.forwarders.run_to_end(AttemptId(self._run, 0), forwarder)))

    def has_hung_up(self) -> bool:
        return bool(self._tasks) and all(task.done() for task in self._tasks)


Begin = Callable[..., tuple[Run, Lender]]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """Pairs of processes that fork servers hand out: the leader's first."""
    pairs, take = list[Pair](), ForkServer.take_pair

    async def note(self: ForkServer) -> Pair:
        pairs.append(await take(self))
        return pairs[-1]

    monkeypatch.setattr(ForkServer, "take_pair", note)
    return pairs


@pytest.fixture
def begin(node: Node) -> Iterator[Begin]:
    """Begins a gang of two ranks: one of this node, and one that the lender lends when it is told to."""
    lenders: list[Lender] = []

    def make(source: str = "print('begun')", **options: Any) -> tuple[Run, Lender]:
        gang = GangOrder(members=[Member("second", "second", 1)], secret=_SECRET, is_gang=True)
        run = node.start(source, gang=gang, **options)
        lenders.append(Lender(node, run))
        return run, lenders[-1]

    yield make
    for lender in lenders:
        node.loop.call_soon_threadsafe(lender.lead.close)


def _kill_supervisor(pair: Pair) -> None:
    signal.pidfd_send_signal(pair._supervisor, signal.SIGKILL)


@pytest.mark.parametrize("victim", ["leader", "lender"])
def test_a_gang_that_loses_a_rank_before_it_begins_can_begin_anew(
    node: Node, begin: Begin, taken: list[Pair], until: Until, victim: str
) -> None:
    """Its leader forgets it without a word to those who follow it, and leaves no mark; no other rank begins."""
    run, lender = begin(gpu_ids=None)
    until(lambda: taken, "the leader's rank")
    node.call(lender.lend())
    lines = run.on_node.gang._lines
    until(lambda: len(lines) == 2, "both ranks wait for the word")
    _kill_supervisor(taken[victim == "lender"])
    until(lambda: lines[victim == "lender"].reader.at_eof(), "the line's end")
    node.loop.call_soon_threadsafe(run.on_node.grant, ["0"])
    run.future.result(60)
    assert "ended before the gang began" in run.on_node.unbegun
    assert (run.messages, run.on_node.outcome) == ([], None)
    assert not (node.marks / run.order.run).exists()
    node.call(lender.forwarders.end_ranks(run.order.attempt_id))
    until(lambda: all(process_control.is_gone(pair.pid) for pair in taken), "the ranks")


def test_a_gang_that_has_begun_leaves_a_mark_and_is_not_begun_anew(
    node: Node, begin: Begin, taken: list[Pair], until: Until
) -> None:
    run, lender = begin("import time\ntime.sleep(1000)")
    until(lambda: taken, "the leader's rank")
    node.call(lender.lend())
    run.wait_for(is_running)
    assert (node.marks / run.order.run).exists()
    assert not node.call(_withdraw(run))
    _kill_supervisor(taken[0])
    assert run.wait().status == "lost"
    assert run.on_node.unbegun == ""


def test_a_gang_whose_lender_is_gone_before_it_joins_can_begin_anew_at_once(node: Node, begin: Begin) -> None:
    """Told by the gateway: there is no line whose end would tell it. A leader that is told to forget it does."""
    run, _ = begin()
    node.loop.call_soon_threadsafe(run.on_node.gang.lose_node, "second")
    run.future.result(20)
    assert "second" in run.on_node.unbegun
    run, _ = begin()
    assert node.call(_withdraw(run))
    run.future.result(20)
    assert (run.on_node.unbegun, run.on_node.outcome, run.messages) == ("", None, [])


async def _withdraw(run: Run) -> bool:
    return run.on_node.withdraw()


def test_a_rank_whose_gang_ends_at_the_moment_in_which_it_is_made_ends(
    node: Node, begin: Begin, taken: list[Pair], monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    run, lender = begin()
    until(lambda: taken, "the leader's rank")
    take = ForkServer.take_pair

    async def in_the_last_moment(self: ForkServer) -> Pair:
        pair = await take(self)
        asyncio.get_running_loop().call_soon(lender.forwarders.by_attempt[run.order.attempt_id].abandon)
        return pair

    monkeypatch.setattr(ForkServer, "take_pair", in_the_last_moment)
    node.call(lender.lend())
    until(lambda: len(taken) == 2 and process_control.is_gone(taken[1].pid), "the lent rank to end")
    until(lambda: taken[1]._rank == -1, "its descriptors to be closed")
    assert node.call(_withdraw(run))
    run.future.result(20)


def test_a_node_that_cannot_make_the_ranks_that_it_lends_tries_again(
    node: Node, begin: Begin, taken: list[Pair], monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    """As when its fork server has just died."""
    run, lender = begin()
    until(lambda: taken, "the leader's rank")
    take, failures = ForkServer.take_pair, iter([True])

    async def fail_once(self: ForkServer) -> Pair:
        if next(failures, False):
            raise ConnectionResetError("the fork server has died")
        return await take(self)

    monkeypatch.setattr(ForkServer, "take_pair", fail_once)
    node.call(lender.lend())
    assert run.wait().status == "ok"
    assert next(failures, None) is None


class Meter(UseMeter):
    """Of a driver that shows lent ranks for as long as a test likes."""

    def __init__(self) -> None:
        super().__init__(GpuReader(Nvml()))
        self.asked, self.clear = threading.Event(), threading.Event()
        self.gpu_ids: list[str] | None = None

    def begin_sampling(self, order: StartOrder) -> None:
        self.gpu_ids = order.gpu_ids

    async def wait_until_clear(self, order: StartOrder, limit_s: float | None = None) -> None:
        self.asked.set()
        while not self.clear.is_set():
            await asyncio.sleep(0.001)


def test_a_node_has_its_gpus_back_when_the_driver_shows_that_the_ranks_have_left_them(
    node: Node, begin: Begin, until: Until
) -> None:
    meter = Meter()
    run, lender = begin()
    lender.forwarders = RankForwarders(lambda _digest, _owner: node.servers, "127.0.0.1", meter)
    node.call(lender.lend())
    assert run.wait().status == "ok"
    left = asyncio.run_coroutine_threadsafe(lender.forwarders.end_ranks(run.order.attempt_id), node.loop)
    until(meter.asked.is_set, "the question")
    assert meter.gpu_ids == ["1"]
    assert not left.done()
    meter.clear.set()
    left.result(60)


def test_a_node_has_its_gpus_back_when_the_rank_of_a_killed_supervisor_is_gone(node: Node, begin: Begin) -> None:
    run, lender = begin(_CELL)
    node.call(lender.lend())
    run.wait_for(_pids)
    lent = _pids(run)[1]

    async def kill_and_leave() -> bool:
        supervisor = psutil.Process(lent).ppid()
        os.kill(supervisor, signal.SIGKILL)
        while not process_control.is_gone(supervisor):
            await asyncio.sleep(0)
        for _ in range(20):  # the line's end is noticed, and the rank is being ended
            await asyncio.sleep(0)
        await lender.forwarders.end_ranks(run.order.attempt_id)
        return process_control.is_gone(lent)

    assert node.call(kill_and_leave())
    assert run.wait().status != "ok"


#: the lent rank ends when it is told to
_ONE_WAITS = """
import os, time
from jupyter_gpu_release import ranks
print(f"rank {{ranks.rank}}", flush=True)
value = 7
while ranks.rank == {rank} and not os.path.exists({go!r}):
    time.sleep(0.01)
"""


def test_interrupts_that_come_after_a_lent_ranks_last_word_cost_nothing(
    node: Node, begin: Begin, until: Until, tmp_path: Path
) -> None:
    """The leader's agent is busy as that rank ends, and speaks before it hears that."""
    go = tmp_path / "go-on"
    run, lender = begin(_ONE_WAITS.format(rank=1, go=str(go)))
    node.call(lender.lend())
    lines = run.on_node.gang._lines
    until(lambda: len(lines) == 2 and lines[0].outcome, "the end of the leader's rank")
    transport = lines[1].writer.transport
    assert isinstance(transport, asyncio.Transport)
    node.loop.call_soon_threadsafe(transport.pause_reading)
    go.touch()
    until(lambda: not lender.forwarders.by_attempt, "the end of the lent rank")
    for _ in range(2):  # the first may still be sent into a line that is closed at the other end
        run.signal("interrupt")
    node.loop.call_soon_threadsafe(transport.resume_reading)
    assert run.wait().status == "ok", run.outcome.error
    assert [value.name for value in run.outcome.results] == ["value"]
    until(lender.has_hung_up, "the end of the line")


def test_a_lender_does_not_hold_a_line_for_ever_whose_leader_runs_on(
    node: Node, begin: Begin, until: Until, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_ranks, "_HEARD_S", 0.01)
    go = tmp_path / "go-on"
    run, lender = begin(_ONE_WAITS.format(rank=0, go=str(go)))
    node.call(lender.lend())
    until(lender.has_hung_up, "the end of the line")
    assert run.on_node.gang._lines[1].outcome is not None
    assert not run.future.done()
    go.touch()
    assert run.wait().status == "ok", run.outcome.error
