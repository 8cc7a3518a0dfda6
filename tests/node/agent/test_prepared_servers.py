"""A user's cells find imported what they import, before they have their GPUs; and it is let go of again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from node_bed import Node

from jupyter_gpu_release.node.agent import prepared_servers
from jupyter_gpu_release.node.agent.fork_server import ForkServer
from jupyter_gpu_release.node.agent.prepared_servers import PreparedServers
from jupyter_gpu_release.protocol.node import PrepareOrder

UntilTrue = Callable[[Callable[[], object], str], None]
#: an installed distribution that no fork server has
_REAL = "iniconfig"
_MODULES = {
    "of_anybody": "value = 1",
    "of_nobody_else": "value = 2",
    "asks_for_gpu": "import ctypes\ntry:\n    ctypes.CDLL('libnvidia-ml.so.1')\nexcept OSError:\n    pass",
    "starts_threads": (
        "import threading\nthread = threading.Thread(target=threading.Event().wait, daemon=True)\nthread.start()"
    ),
    "asks_for_rank": "import os\nrank = os.environ.get('RANK')",
    "ends_process": "import os\nos._exit(3)",
    "is_broken": "import no_such_module",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node on which these modules count as installed."""
    folder = tmp_path_factory.mktemp("libraries")
    for name, source in _MODULES.items():
        (folder / f"{name}.py").write_text(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        patch.setattr(prepared_servers, "is_installed", lambda name: name in _MODULES or name == _REAL)
        node = Node(tmp_path_factory.mktemp("store") / "store", ["json"], max_prepared=2)
        yield node
        node.close()


@pytest.fixture
def prepared(place: Node) -> Iterator[PreparedServers]:
    found = place.servers.prepared
    yield found
    place.loop.call_soon_threadsafe(found.kill_all)
    _on_loop(place, lambda: (found._learned.clear(), found._unfit.clear()))
    assert not found.info


def _on_loop(node: Node, act: Callable[[], object]) -> None:
    async def do() -> None:
        act()

    node.call(do())


def _prepare(node: Node, *names: str, user: str = "ann", session: str = "") -> None:
    node.call(node.servers.prepared.prepare(PrepareOrder(list(names), user, session)))


def _finds(node: Node, *names: str, **order: object) -> dict[str, bool]:
    """Modules → whether a cell finds them imported."""
    run = node.run(f"import json, sys\nprint(json.dumps({{n: n in sys.modules for n in {names!r}}}))", **order)
    assert run.outcome.error is None, run.outcome
    found: dict[str, bool] = json.loads(run.text())
    return found


def test_a_cell_finds_what_it_needs_and_the_others_are_as_ever(place: Node, prepared: PreparedServers) -> None:
    _prepare(place, "of_anybody", "not_installed", "json")
    assert [each.libraries for each in prepared.info] == [["of_anybody"]]
    assert 0 < prepared.info[0].bytes < 200 << 20
    assert _finds(place, "of_anybody", needs=["of_anybody", "json"]) == {"of_anybody": True}
    assert _finds(place, "of_anybody", needs=["json"]) == {"of_anybody": False}
    assert _finds(place, "of_anybody", needs=["of_anybody"], fresh=True) == {"of_anybody": False}
    assert _finds(place, "of_anybody", needs=["of_anybody"], user="bob") == {"of_anybody": True}


def test_what_a_cell_had_to_import_is_prepared_for_the_next_one(
    place: Node, prepared: PreparedServers, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_servers, "_WORTH_S", 0.0)
    run = place.run(f"import {_REAL}, wave", user="ann", session="s1")
    assert [(each.name, each.early) for each in run.outcome.imported] == [(_REAL, False)]
    until(lambda: prepared.info, "the server that is prepared for it")
    assert _finds(place, _REAL, user="ann") == {_REAL: True}
    assert _finds(place, _REAL, user="bob") == {_REAL: False}
    assert not place.run(f"import {_REAL}", user="ann").outcome.imported
    assert [each.sessions for each in prepared._all] == [{"s1"}]


def test_what_asks_for_a_gpu_is_imported_when_there_is_one_and_the_receipt_says_so(
    place: Node, prepared: PreparedServers
) -> None:
    _prepare(place, "asks_for_gpu", "of_anybody", "is_broken", "ends_process")
    assert [each.libraries for each in prepared.info] == [["of_anybody"]]
    assert prepared._unfit["ends_process"].startswith("the process ended")
    assert _finds(place, "of_anybody", "asks_for_gpu", needs=["of_anybody", "asks_for_gpu"]) == {
        "of_anybody": True,
        "asks_for_gpu": False,
    }
    slow = [prepared_servers.ImportedModule("asks_for_gpu", 1.25), prepared_servers.ImportedModule("of_anybody", 0.5)]
    notes: list[str] = []
    _on_loop(place, lambda: notes.extend(prepared.learn("ann", "", slow)))
    assert notes == [
        "1.2 s of the time held went into importing asks_for_gpu: it asks for a GPU when it is imported "
        "(libnvidia-ml.so.1)",
        "0.5 s of the time held went into importing of_anybody: the next cell finds it imported",
    ]


def test_what_starts_threads_is_imported_by_who_stands_by(
    place: Node, prepared: PreparedServers, until: UntilTrue
) -> None:
    _prepare(place, "starts_threads", "of_anybody")
    server = prepared._all[0].server
    until(lambda: server._spares and all(pair.is_warm for pair in server._spares), "pairs that stand by")
    run = place.run("import starts_threads\nprint(starts_threads.thread.is_alive())", needs=["starts_threads"])
    assert run.text() == "True\n"
    assert not run.outcome.imported


def test_ranks_of_a_gang_have_nothing_that_asked_for_its_rank(place: Node, prepared: PreparedServers) -> None:
    _prepare(place, "asks_for_rank")
    assert _finds(place, "asks_for_rank", needs=["asks_for_rank"]) == {"asks_for_rank": True}
    source = "import asks_for_rank, os\nassert asks_for_rank.rank == os.environ['RANK']"
    outcome = place.run(source, needs=["asks_for_rank"], ranks=2, gpus=2, gpu_ids=["0", "1"]).outcome
    assert outcome.error is None


def _is_gone(node: Node, server: ForkServer) -> bool:
    _on_loop(node, node.servers.prepared._alive)  # as it is looked every few seconds
    return not server.alive and not server.path.exists()


def test_it_goes_with_the_last_session_that_asked_for_it(
    place: Node, prepared: PreparedServers, until: UntilTrue
) -> None:
    _prepare(place, "of_anybody", session="s1")
    _prepare(place, "of_anybody", user="bob", session="s2")
    (server,) = [each.server for each in prepared._all]
    _on_loop(place, lambda: prepared.end_session("s1"))
    assert server.alive
    assert len(prepared.info) == 1
    run = place.start("import time\nwhile True: time.sleep(0.01)", needs=["of_anybody"], grace_s=5.0)
    run.wait_for(lambda run: run.phase("running"))
    _on_loop(place, lambda: prepared.end_session("s2"))
    assert not prepared.info
    run.signal("interrupt")
    assert run.wait().status == "interrupted", "a cell that ran there went on"
    until(lambda: _is_gone(place, server), "the end of the prepared server")


def test_it_is_not_held_by_a_session_that_ended_before_it_was_there(
    place: Node, prepared: PreparedServers, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it was made, or before the end of the run from which it was learned."""
    stand_by = ForkServer.stand_by

    async def end_meanwhile(server: ForkServer, limit_s: float) -> None:
        prepared.end_session("s1")
        await stand_by(server, limit_s)

    monkeypatch.setattr(ForkServer, "stand_by", end_meanwhile)
    _prepare(place, "of_anybody", session="s1")
    assert [each.sessions for each in prepared._all] == [set()]
    slow = [prepared_servers.ImportedModule("of_nobody_else", 1.0)]
    _on_loop(place, lambda: prepared.learn("bob", "s1", slow))
    until(lambda: len(prepared._all) > 1, "what was learned")
    assert [each.sessions for each in prepared._all] == [set(), set()]
    _prepare(place, "of_anybody", session="s1")
    assert [each.sessions for each in prepared._all] == [{"s1"}, set()], "it is back"


def test_one_that_was_begun_before_packages_changed_is_not_used_after_it(
    place: Node, prepared: PreparedServers, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_by, made = ForkServer.stand_by, list[ForkServer]()

    async def change_meanwhile(server: ForkServer, limit_s: float) -> None:
        if not made:
            made.append(server)
            place.servers.retire_all()
        await stand_by(server, limit_s)

    monkeypatch.setattr(ForkServer, "stand_by", change_meanwhile)
    _prepare(place, "of_anybody")
    assert not prepared.info
    until(lambda: _is_gone(place, made[0]), "its end")
    _prepare(place, "of_anybody")
    assert _finds(place, "of_anybody", needs=["of_anybody"]) == {"of_anybody": True}


def test_there_are_no_more_than_are_allowed_and_who_has_more_replaces_who_has_less(
    place: Node, prepared: PreparedServers, until: UntilTrue
) -> None:
    _prepare(place, "of_anybody")
    first = prepared._all[0].server
    _prepare(place, "of_nobody_else")
    second = prepared._all[1].server
    assert _finds(place, "of_anybody", needs=["of_anybody"]) == {"of_anybody": True}
    _prepare(place, "asks_for_rank")
    assert [each.libraries for each in prepared.info] == [["of_anybody"], ["asks_for_rank"]]
    until(lambda: _is_gone(place, second), "the end of the one that was used least of late")
    _prepare(place, "of_anybody", "of_nobody_else")
    assert [each.libraries for each in prepared.info] == [["asks_for_rank"], ["of_anybody", "of_nobody_else"]]
    both = prepared._all[-1]
    assert both.depth == 1
    assert both.bytes > first.status.bytes
    assert _finds(place, "of_anybody", needs=["of_nobody_else"]) == {"of_anybody": True}
    _on_loop(place, lambda: prepared._drop(both))
    until(lambda: _is_gone(place, first), "the end of the one that had less, and of what was forked from it")


def test_it_goes_when_memory_is_short_or_nobody_uses_it(
    place: Node, prepared: PreparedServers, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_servers, "_LOOK_S", 0.01)
    _prepare(place, "of_anybody", session="s1")
    _prepare(place, "of_nobody_else")
    kept, unused = [each.server for each in prepared._all]
    prepared._all[1].used_s = time.monotonic() - 3600.0
    prepared._all[0].used_s = time.monotonic() - 3600.0
    watch = asyncio.run_coroutine_threadsafe(prepared.watch_forever(), place.loop)
    until(lambda: _is_gone(place, unused), "the end of what nobody uses")
    assert kept.alive, "its session goes on"
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(100, 5))
    until(lambda: _is_gone(place, kept), "the end of what there is no memory for")
    watch.cancel()


def test_it_dies_with_the_fork_server_and_the_next_cell_runs(
    place: Node, prepared: PreparedServers, until: UntilTrue
) -> None:
    _prepare(place, "of_anybody")
    server, base = prepared._all[0].server, place.servers._current
    assert base is not None
    os.kill(base.pid, signal.SIGKILL)
    until(lambda: not server.alive, "its end")
    assert _finds(place, "of_anybody", needs=["of_anybody"]) == {"of_anybody": False}
    _prepare(place, "of_anybody")
    assert _finds(place, "of_anybody", needs=["of_anybody"]) == {"of_anybody": True}


@pytest.mark.parametrize("at", ["hear", "ready", "stand_by"])
def test_one_in_the_making_ends_with_the_others(
    place: Node, prepared: PreparedServers, until: UntilTrue, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Wherever it is by then: its process ends, and the line to it is closed."""
    reached: list[ForkServer] = []

    async def hang(server: ForkServer, *_: object) -> None:
        if server is not place.servers._current:
            reached.append(server)
            await asyncio.Event().wait()

    monkeypatch.setattr(ForkServer, at, hang)
    making = asyncio.run_coroutine_threadsafe(prepared.prepare(PrepareOrder(["of_anybody"], "ann", "")), place.loop)
    until(lambda: reached, "it hangs there")
    making.cancel()
    until(lambda: reached[0]._line.fileno() < 0, "the line to it is closed")
    until(lambda: not reached[0].alive, "its process has ended")


_AGENT = """
import asyncio, sys
from jupyter_gpu_release.node.agent.fork_servers import ForkServers
from jupyter_gpu_release.protocol.node import AgentConfig, PrepareOrder

async def main():
    servers = ForkServers(AgentConfig(store="", runtime=sys.argv[1], preload=["json"]), "n" * 12)
    await servers.prepared.prepare(PrepareOrder(["iniconfig"], "ann", "s"))
    (each,) = servers.prepared._all
    pair = await each.server.take_pair()
    print(each.server.pid, servers._current.pid, pair.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_it_dies_with_its_agent(tmp_path: Path, until: UntilTrue) -> None:
    agent = subprocess.Popen([sys.executable, "-c", _AGENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    with agent, agent.stdout:
        pids = [int(word) for word in agent.stdout.readline().split()]
        assert len(pids) == 3
        agent.kill()
    until(lambda: not any(map(psutil.pid_exists, pids)), "the end of all that was the agent's")
