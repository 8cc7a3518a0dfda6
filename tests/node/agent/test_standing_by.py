"""Pairs that stand by are warmed up, in quiet moments only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from node_bed import Node

from jupyter_gpu_release.node.agent import fork_server
from jupyter_gpu_release.node.agent.fork_server import ForkServer
from jupyter_gpu_release.node.supervisor.agent_connection import Pair

UntilTrue = Callable[[Callable[[], object], str], None]
#: said by the rank itself
_IS_WARM = "from jupyter_gpu_release.node.values import settings\nprint(settings._at_rest is not None)"


@pytest.fixture
def server(node: Node) -> Iterator[ForkServer]:
    made: ForkServer = node.call(node.servers.start_server())
    yield made
    assert made._filling is not None
    node.loop.call_soon_threadsafe(made._filling.cancel)  # it may wait for a moment that is not to come
    node.run("pass")  # asks for pairs anew


def _is_warm(node: Node) -> str:
    run = node.run(_IS_WARM)
    assert run.outcome.error is None
    return run.text()


def test_who_stands_by_in_a_quiet_moment_is_warm(node: Node, server: ForkServer, until: UntilTrue) -> None:
    node.run("pass")
    until(lambda: server._filling is None or server._filling.done(), "pairs that stand by")
    assert [pair.is_warm for pair in server._spares] == [True] * node.servers._standby
    assert _is_warm(node) == "True\n"


def test_a_rank_gets_warm_with_what_its_fork_server_has_made(node: Node, server: ForkServer, until: UntilTrue) -> None:
    node.run("pass")
    until(lambda: server._filling is None or server._filling.done(), "pairs that stand by")
    run = node.run("from jupyter_gpu_release.node.rank import warmup\nprint(warmup._sent.cache_info()[:2])")
    assert run.text() == "(1, 1)\n"  # found once, made once


def test_nobody_is_warmed_while_cells_follow_each_other(
    node: Node, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "_WARM_QUIET_S", 3600.0)
    said = [_is_warm(node) for _ in range(node.servers._standby + 2)]
    assert said[-2:] == ["False\n"] * 2  # those before them stood by already


def test_a_pair_that_comes_after_its_fork_server_was_given_up_is_closed(node: Node) -> None:
    async def play() -> bool:
        made = await node.servers._spawn([])
        await made.ready()
        connect, has_come, goes_on = made._connect, asyncio.Event(), asyncio.Event()
        pairs: list[Pair] = []

        async def connect_late() -> Pair:
            pairs.append(await connect())
            has_come.set()
            await goes_on.wait()
            return pairs[0]

        made._connect = connect_late  # type: ignore[method-assign]
        made.prefork(1)
        await has_come.wait()
        made.remove_files()
        goes_on.set()
        assert made._filling is not None
        await asyncio.wait([made._filling])
        return pairs[0].is_closed

    assert node.call(play())
