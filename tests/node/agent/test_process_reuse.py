"""A process that stays after a call of a function, for the next one: what that finds, and what ends it instead."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from node_bed import Node, Run

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.node.agent import process_reuse
from jupyter_gpu_release.protocol.node import RunPhase

Until = Callable[[Callable[[], object], str], None]
_PID = "import os\nprint(os.getpid())\nresult = 1"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test may be slow to send the next call."""
    monkeypatch.setattr(process_reuse, "_LONGEST_S", 600.0)
    monkeypatch.setattr(process_reuse, "_END_S", 60.0)


def _stays(run: Run) -> bool:
    return any(isinstance(message, RunPhase) and message.stays for message in run.messages)


def _call(node: Node, source: str = _PID, after: Run | None = None, **options: object) -> Run:
    options = {"stays": True, **options}
    return node.run(source, out=["result"], series="f", after=after.order.run if after else "", **options)


def _pid(run: Run) -> int:
    return int(run.text().split()[0])


def _is_in_its_process(run: Run, before: Run) -> bool:
    """By their line: a call may be ended before it says a word."""
    return run.on_node.gang._lines[0].writer is before.on_node.gang._lines[0].writer


def _let_go(node: Node, run: Run) -> None:
    node.call(node.servers.staying.let_go(run.order.run))


def test_the_next_call_finds_the_process_as_the_first_one_did(node: Node) -> None:
    """Names, environment, folder, module path, local modules, settings of libraries, random numbers."""
    local = node.store / "local_module.py"
    local.write_text("value = 1")
    look = (
        "import json, logging, os, random, sys, warnings\nimport local_module\nprint(os.getpid(), local_module.value)\n"
        "result = [sorted(n for n in dir() if n[0] != '_'), os.environ.get('MINE'), os.getcwd(), sys.path,"
        " len(warnings.filters), sys.argv, os.environ['JUPYTER_GPU_RUN'], random.random(),"
        " str(logging.root), str(logging.root.handlers)]\n"
        "print(json.dumps(result))\n"
    )
    spoil = (
        "mine = result\nos.environ['MINE'] = '1'\nos.chdir('/')\nsys.path.insert(0, '/nowhere')\n"
        "sys.argv.append('odd')\nwarnings.simplefilter('error')\nimport sqlite3\n"
        "logging.basicConfig(level=10)"
    )
    first = _call(node, look + spoil)
    local.write_text("value = 22222")
    second = _call(node, look, after=first)
    assert _stays(first)
    assert _pid(first) == _pid(second)
    assert (first.text().split()[1], second.text().split()[1]) == ("1", "22222")
    before, after = (json.loads(run.text().splitlines()[1]) for run in (first, second))
    assert before[:6] == after[:6]
    assert (before[6], after[6]) == (first.order.run, second.order.run)
    assert before[7] != after[7]
    assert before[8:] == after[8:] == ["<RootLogger root (WARNING)>", "[]"]
    assert not second.outcome.notes
    _let_go(node, second)
    assert process_control.is_gone(_pid(second))


@pytest.mark.parametrize(
    "leaves",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        "import subprocess; child = subprocess.Popen(['sleep', '99'])",
        "keep = open('held', 'w'); import builtins; builtins.keep = keep",
        "import atexit; atexit.register(print)",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import sys, io; sys.stdout = io.StringIO()",
        "import logging; logging.root.addHandler(logging.NullHandler())",
        "import builtins; builtins.much = bytearray(300 << 20)",
        "raise ValueError",
        "result = bytes(2 << 20)",
    ],
)
def test_what_a_call_leaves_behind_ends_its_process(node: Node, leaves: str) -> None:
    first = _call(node, f"{_PID}\n{leaves}")
    assert not _stays(first)
    assert process_control.is_gone(_pid(first))
    second = _call(node, after=first)
    assert second.outcome.status == "ok"
    assert _pid(second) != _pid(first)
    _let_go(node, second)


def test_one_that_is_asked_for_nothing_ends_by_itself(
    node: Node, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_reuse, "_LONGEST_S", 0.1)
    run = _call(node)
    assert _stays(run)
    until(lambda: process_control.is_gone(_pid(run)), "it is gone")
    assert _pid(_call(node, after=run)) != _pid(run)


@pytest.mark.parametrize("who", ["rank", "supervisor"])
def test_one_that_is_killed_while_it_waits_is_replaced(node: Node, until: Until, who: str) -> None:
    first = _call(node)
    parent = int(Path(f"/proc/{_pid(first)}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(_pid(first) if who == "rank" else parent, signal.SIGKILL)
    until(lambda: process_control.is_gone(_pid(first)) and process_control.is_gone(parent), "both are gone")
    second = _call(node, after=first)
    assert second.outcome.status == "ok"
    assert _pid(second) != _pid(first)
    _let_go(node, second)


def test_an_interrupt_that_came_too_late_is_not_the_next_calls(node: Node) -> None:
    late = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\nos.kill(os.getpid(), signal.SIGINT)"
    )
    first = _call(node, f"{_PID}\n{late}")
    assert (first.outcome.status, _stays(first)) == ("ok", True)
    second = _call(node, after=first)
    assert (second.outcome.status, _pid(second)) == ("ok", _pid(first))
    _let_go(node, second)


def test_limits_and_interrupts_are_the_next_calls_own(node: Node) -> None:
    first = _call(node, timeout_s=60.0)
    late = _call(node, "import time\ntime.sleep(60)", after=first, timeout_s=0.3)
    assert _is_in_its_process(late, first)
    assert late.outcome.status == "timeout"
    assert not _stays(late)
    assert process_control.is_gone(_pid(first))
    third = _call(node)
    full = _call(
        node, f"{_PID}\nx = bytearray(200 << 20)\nimport time; time.sleep(60)", after=third, memory_bytes=1 << 26
    )
    assert _pid(full) == _pid(third)
    assert full.outcome.status == "memory"


def test_packages_that_changed_need_another_process(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _call(node)
    monkeypatch.setattr(node.servers, "_packages_changed", lambda: True)
    second = _call(node, after=first)
    assert _pid(second) != _pid(first)
    assert process_control.is_gone(_pid(first))
    monkeypatch.undo()
    _let_go(node, second)


# the word goes from the agent over the supervisor: on a busy machine the cell could end before it is there
_UNTIL_TOLD = (
    f"{_PID}\nimport select\n"
    "fds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
    "socks = [fd for fd in fds if os.path.lexists(f'/proc/self/fd/{fd}')"
    " and os.readlink(f'/proc/self/fd/{fd}').startswith('socket:')]\n"
    "print('begins', flush=True)\nprint(bool(select.select(socks, [], [], 20)[0]))"
)


def test_one_hears_of_the_next_call_while_it_works(node: Node) -> None:
    """As early as before its first statement; who hears nothing ends."""
    alone = _call(node, stays=False)
    assert not _stays(alone)
    for is_early in (True, False):
        run = node.start(_UNTIL_TOLD, out=["result"], series="f")
        if not is_early:
            run.wait_for(lambda run: "begins" in run.text())
        node.loop.call_soon_threadsafe(run.on_node.gang.stay)
        run.wait()
        assert run.text().split()[1:] == ["begins", "True"]
        assert _stays(run)
        _let_go(node, run)
        assert process_control.is_gone(_pid(run))
