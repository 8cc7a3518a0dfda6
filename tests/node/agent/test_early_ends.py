"""What ends before a cell begins, and ends that nobody planned: the cell still runs, or its user hears of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from node_bed import Node, Run, is_running
from soak import thorough

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.node.agent import packages
from jupyter_gpu_release.node.agent.run import RunOnNode
from jupyter_gpu_release.node.ipc.frames import Go
from jupyter_gpu_release.node.rank import environment
from jupyter_gpu_release.protocol.cell import CellPayload, Graph
from jupyter_gpu_release.protocol.node import StartOrder
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

UntilTrue = Callable[[Callable[[], object], str], None]
#: says that it is being loaded, and waits for a word
_LOADS = """
import os, pathlib, time, types
here = pathlib.Path({folder!r})
(here / f"{{len(list(here.iterdir()))}}-{{os.getpid()}}").touch()
while len(list(here.iterdir())) < 2:
    time.sleep(0.01)
"""


class _Slow:
    """Loads only the second time that somebody tries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return eval, (f"exec({_LOADS.format(folder=str(self.folder))!r}) or 5",)


@pytest.mark.parametrize("victim", ["rank", *thorough("supervisor")])
def test_a_cell_whose_processes_are_killed_before_it_begins_begins_anew(
    node: Node, until: UntilTrue, tmp_path: Path, victim: str
) -> None:
    run, rank = _loading(node, until, tmp_path)
    os.kill({"rank": rank, "supervisor": _pairs(node)[rank]}[victim], signal.SIGKILL)
    outcome = run.wait()
    assert (outcome.error, run.text()) == (None, "5\n")
    assert len(list(tmp_path.iterdir())) == 2
    assert len([message for message in run.messages if message == run.phase("running")]) == 1


def _loading(node: Node, until: UntilTrue, folder: Path) -> tuple[Run, int]:
    """A run whose inputs are being loaded, and the rank that does it."""
    dump = codec.dump({"slow": _Slow(folder)}, NamespaceInfo(types.ModuleType("__main__").__dict__, at_home=True))
    run = node.start("print(slow)", gpus=1, inputs=Graph(stream=dump.stream))
    until(lambda: list(folder.iterdir()), "a rank that loads")
    return run, int(next(folder.iterdir()).name.partition("-")[2])


@pytest.mark.slow("a fork server is started again")
def test_no_gpu_is_held_while_the_fork_server_is_started_again(node: Node, until: UntilTrue, tmp_path: Path) -> None:
    """The run is given back: it has not begun, and nothing of it is left."""
    run, rank = _loading(node, until, tmp_path)
    server = _server(node)
    os.kill(server, signal.SIGKILL)
    run.future.result(60)
    assert "that cells are forked from has ended" in run.on_node.unbegun
    assert process_control.is_gone(rank)
    assert run.phase("released") is None
    until(lambda: node.servers.is_standing, "the next one")
    assert _server(node) != server


def test_a_cell_that_has_begun_is_not_begun_again(node: Node, tmp_path: Path) -> None:
    run = node.start(f"import os, time\nopen({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w')\ntime.sleep(1000)")
    run.wait_for(is_running)
    os.kill(_server(node), signal.SIGKILL)
    outcome = run.wait()
    assert (outcome.status, len(list(tmp_path.iterdir()))) in (("lost", 1), ("lost", 0))
    assert outcome.error is not None
    assert "were killed" in outcome.error.evalue
    assert "supervisor" not in outcome.error.evalue


def _server(node: Node) -> int:
    current = node.servers._current
    assert current is not None
    return current.pid


def _pairs(node: Node) -> dict[int, int]:
    return {
        rank: pid for pid in process_control.children_of(_server(node)) for rank in process_control.children_of(pid)
    }


@pytest.mark.thorough
def test_a_fork_server_that_is_gone_leaves_nothing_on_the_disk(node: Node, until: UntilTrue) -> None:
    assert node.run("x = 1").outcome.status == "ok"  # there is one, whatever the tests before have killed
    os.kill(_server(node), signal.SIGKILL)
    until(lambda: not node.servers._current.alive, "it is dead")  # type: ignore[union-attr]
    assert node.run("print(1)").outcome.status == "ok"
    until(lambda: len(list(node.runtime.glob("fs-*.sock"))) == 1, "the living one's only")
    assert len(list(node.runtime.glob("fs-*.log"))) == 1


@pytest.mark.slow("a fork server that takes long")
def test_a_fork_server_that_takes_long_to_start_holds_up_nobody(
    own_node: Node, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Python lies on a filesystem that hangs: the node's event loop answers meanwhile."""
    starting, go, popen = threading.Event(), threading.Event(), subprocess.Popen

    def hang(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        starting.set()
        assert go.wait(60)
        return popen(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", hang)
    os.kill(_server(own_node), signal.SIGKILL)
    until(lambda: not own_node.servers._current.alive, "it is dead")  # type: ignore[union-attr]
    run = own_node.start("print(1)")
    until(starting.is_set, "the next one is being started")
    own_node.call(asyncio.sleep(0))
    assert not go.is_set()
    go.set()
    assert run.wait().status == "ok"


@pytest.mark.slow("a fork server is started again")
def test_a_library_that_ends_the_process_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "ends_the_process.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.syspath_prepend(str(modules))
    (tmp_path / "store").mkdir()
    other = Node(tmp_path / "store", ["json", "ends_the_process", "csv"])
    try:
        assert other.run("import sys\nprint('csv' in sys.modules)").text() == "True\n"
        assert [note for note in other.servers.notes if "ends_the_process was not preloaded" in note]
    finally:
        other.close()


@pytest.mark.slow("a fork server is started again")
def test_a_fault_of_ours_ends_the_run_and_lets_go(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a driver in trouble")

    monkeypatch.setattr(node.meter, "begin_sampling", fail)
    pids = set(_pairs(node))
    run = node.start("import time\ntime.sleep(1000)", gpus=1)
    outcome = run.wait()
    assert outcome.status == "lost"
    assert outcome.error is not None
    assert "RuntimeError: a driver in trouble" in outcome.error.evalue
    assert run.phase("released") is not None
    assert run.phase("final") is not None
    assert any(process_control.is_gone(pid) for pid in pids) or not pids


def test_a_run_is_released_when_the_driver_shows_that_it_has_left_its_gpus(
    node: Node, until: UntilTrue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, clear = threading.Event(), threading.Event()

    async def until_clear(order: StartOrder) -> None:
        asked.set()
        while not clear.is_set():
            await asyncio.sleep(0.001)

    monkeypatch.setattr(node.meter, "wait_until_clear", until_clear)
    run = node.start("x = 1", gpus=1)
    until(asked.is_set, "the question")
    assert run.phase("ended") is not None
    assert run.phase("released") is None
    clear.set()
    assert run.wait().status == "ok"
    assert run.phase("released") is not None


def test_a_process_that_cannot_be_killed_is_named_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    told: list[str] = []
    monkeypatch.setattr(process_control, "STUCK_S", 0.0)
    killed = signal.pidfd_send_signal
    # as one that waits in the kernel: signals are for later
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda fd, number: killed(fd, number) if told else None)
    assert process_control.end_all(lambda: [child.pid], on_stuck=told.append) == 1
    assert child.wait() == -signal.SIGKILL
    assert f"process {child.pid} (python" in told[0]
    assert "GPUs stay held" in told[0]


def test_asking_for_a_part_of_a_package_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked_for").mkdir()
    (tmp_path / "asked_for" / "__init__.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packages.missing_packages(["asked_for.part", "not_here.part", "..", ""]) == ["not_here.part", "..", ""]
    packages.Packages().environment(["asked_for.part", ""])
    assert "asked_for" not in sys.modules


def test_ranks_on_several_nodes_talk_where_the_others_reach_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    interface, address = next(
        (name, each.address) for name, found in psutil.net_if_addrs().items() for each in found if "." in each.address
    )
    go = Go(["0"], {"MASTER_ADDR": address}, nodes=2)
    monkeypatch.setenv("MASTER_ADDR", "")
    environment.set_rank_variables(go, CellPayload(source=""))
    assert os.environ["GLOO_SOCKET_IFNAME"] == os.environ["NCCL_SOCKET_IFNAME"] == interface
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "mine")
    environment.set_rank_variables(go, CellPayload(source=""))
    assert os.environ["GLOO_SOCKET_IFNAME"] == "mine"


class _NoServer:
    """Gives no fork server, after a while."""

    def __init__(self, error: Exception) -> None:
        self.asked, self._error = threading.Event(), error
        self.answer = asyncio.Event()

    async def ready_server(self, **_: object) -> None:
        self.asked.set()
        await self.answer.wait()
        raise self._error


@pytest.mark.parametrize("error", [ClusterError("no process came"), OSError("no fork")])
def test_a_run_that_was_taken_back_tells_nothing_and_does_not_begin(node: Node, error: Exception) -> None:
    run = node.start("print(1)", gpu_ids=None)  # waits for its grant
    servers = node.call(_make_server(error))
    node.call(_forget(run.on_node))
    run.future.result(60)
    again = node.call(_begin_with(node, run, servers))
    assert servers.asked.wait(60)
    assert node.call(_withdraw(again))
    node.loop.call_soon_threadsafe(servers.answer.set)
    node.call(_until_over(again))
    assert (again.outcome, again.unbegun, run.messages) == (None, "", [])


async def _make_server(error: Exception) -> _NoServer:
    return _NoServer(error)


async def _forget(on_node: RunOnNode) -> None:
    on_node.abandon()


async def _begin_with(node: Node, run: Any, servers: Any) -> RunOnNode:
    order = msgspec.structs.replace(run.order, gpu_ids=["0"])
    again = RunOnNode(order, servers, node.meter, node.keeping, run._tell)
    again.task = asyncio.create_task(again.run_to_end())
    return again


async def _withdraw(on_node: RunOnNode) -> bool:
    return on_node.withdraw()


async def _until_over(on_node: Any) -> None:
    await on_node.task
