"""Cells that take from their own process what it needs to be heard: each ends, and says why."""

from __future__ import annotations

import json
import sys

import pytest
from node_bed import Node

from jupyter_gpu_release.host import process_control

_CLOSE_ALL = "import os, threading, time\nos.closerange(3, 1000)\n"
_SPEAKING = """
import threading, time
def speak():
    while True:
        print('.', end='', flush=True)
threading.Thread(target=speak, daemon=True).start()
time.sleep(0.05)
"""
_CHILD = "import os, time\nif os.fork() == 0:\n    time.sleep(1000)\n"


@pytest.mark.parametrize(
    "source",
    [
        _CLOSE_ALL,
        _CLOSE_ALL + "time.sleep(1000)",
        _CLOSE_ALL + "while True:\n    print('x', flush=True)",
        _SPEAKING + _CLOSE_ALL + "time.sleep(1000)",
        _CHILD + _CLOSE_ALL,  # the child holds them open, so nobody else sees it
        "import jupyter_gpu_release as gpu_release\ngpu_release.publish(step=1)\n" + _CLOSE_ALL,
    ],
)
def test_a_cell_that_closes_all_descriptors_ends_and_says_so(node: Node, source: str) -> None:
    run = node.run("print('before', flush=True)\n" + source)
    assert run.outcome.status == "died"
    assert run.outcome.error is not None
    assert "closed the files by which it speaks to its node" in run.outcome.error.evalue
    assert run.text().startswith("before\n")


def test_files_that_took_the_place_of_ours_are_not_written_to(node: Node) -> None:
    run = node.run(
        "import os\ntaken = os.open('taken', os.O_CREAT | os.O_WRONLY)\n"
        "for descriptor in range(3, 200):\n    os.dup2(taken, descriptor)\n"  # at once: it is ended soon
        "for _ in range(100):\n    print('x', flush=True)"
    )
    assert run.outcome.status == "died"
    assert (node.store / "taken").read_bytes() == b""


def test_a_supervisor_waits_quietly_when_its_rank_writes_elsewhere(node: Node) -> None:
    run = node.run(
        "import json, os, psutil, time\n"
        "said = os.dup(1)\n"
        "file = open('elsewhere.txt', 'wb')\n"
        "os.dup2(file.fileno(), 1)\nos.dup2(file.fileno(), 2)\n"
        "os.close(said)\n"
        "supervisor = psutil.Process(os.getppid())\n"
        "before = supervisor.cpu_times()\n"
        "time.sleep(1)\n"
        "print(json.dumps(sum(supervisor.cpu_times()[:2]) - sum(before[:2])))"
    )
    assert run.outcome.status == "ok"
    assert json.loads(run.text()) < 0.3


def test_a_process_forked_by_the_cell_hands_nothing_over(node: Node) -> None:
    run = node.run(
        "import os, sys\n"
        "class Marks:\n"
        "    def __reduce__(self):\n"
        "        open(f'collected-{os.getpid()}', 'w').close()\n"
        "        return int, ()\n"
        "marks, large = Marks(), bytearray(3 << 20)\n"
        "def child(end):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        end()\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "codes = [child(sys.exit), child(lambda: sys.exit(3)), child(lambda: 1 / 0)]\n"
        "pid = os.fork()\n"
        "if pid:\n"
        "    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "    print(os.getpid(), codes)"
    )
    assert run.outcome.status == "ok"
    pid, codes = run.text().split(maxsplit=1)
    assert json.loads(codes) == [0, 3, 1, 0]
    assert [file.name for file in node.store.glob("collected-*")] == [f"collected-{pid}"]
    assert "ZeroDivisionError" in run.text("stderr")


def test_results_of_a_cell_with_no_descriptor_left_are_kept(node: Node) -> None:
    run = node.run(
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "taken = []\n"
        "try:\n"
        "    while True:\n"
        "        taken.append(os.dup(0))\n"
        "except OSError:\n"
        "    pass\n"
        "large = bytearray(3 << 20)"
    )
    assert run.outcome.status == "ok", run.outcome.error
    assert "large" in [value.name for value in run.outcome.results]


def test_a_signal_without_a_name_is_told_by_its_number(node: Node) -> None:
    run = node.run("import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 3)")
    assert run.outcome.status == "died"
    assert run.outcome.error is not None
    assert "signal 37" in run.outcome.error.evalue


def test_an_interrupt_that_comes_after_the_last_word_costs_nothing(node: Node) -> None:
    """The agent is busy as the cell ends, and speaks before it hears that."""
    go = node.store / "go-on"
    run = node.start(
        f"import os, time\nprint(os.getpid(), os.getppid(), flush=True)\nvalue = 7\n"
        f"while not os.path.exists({str(go)!r}):\n    time.sleep(0.01)"
    )
    run.wait_for(lambda r: r.text().endswith("\n"))
    rank, supervisor = map(int, run.text().split())

    async def interrupt_late() -> None:
        go.touch()
        assert process_control.wait_until_gone(rank, 60)
        process_control.wait_until_gone(supervisor, 1)
        run.on_node.signal_ranks("interrupt", "interrupted")

    node.call(interrupt_late())
    assert run.wait().status == "ok", run.outcome.error
    assert "value" in [value.name for value in run.outcome.results]
    assert process_control.wait_until_gone(supervisor, 60)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="a fault of Python before 3.13")
def test_an_interrupt_amid_a_flush_leaves_a_cell_that_is_heard(node: Node) -> None:
    """CPython 3.11 takes a thread for ended once an interrupt has struck in its ``is_alive``."""
    run = node.run(
        "import sys, threading\n"
        "real, struck = threading.Thread._wait_for_tstate_lock, []\n"
        "def strike(self, *args, **kwargs):\n"
        "    if not struck and self.name == 'jgr-output':\n"
        "        struck.append(1)\n"
        "        self._stop()\n"
        "        raise KeyboardInterrupt\n"
        "    return real(self, *args, **kwargs)\n"
        "threading.Thread._wait_for_tstate_lock = strike\n"
        "try:\n    print('one', flush=True)\nexcept KeyboardInterrupt:\n    pass\n"
        "threading.Thread._wait_for_tstate_lock = real\n"
        "print('two', flush=True)\nvalue = 7"
    )
    assert run.outcome.status == "ok", run.outcome.error
    assert run.text() == "one\ntwo\n"
