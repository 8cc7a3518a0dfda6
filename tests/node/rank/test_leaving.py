"""A process that has let go of everything counts as gone: its memory takes the system another 10 ms."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
from collections.abc import Callable
from pathlib import Path

import pytest
from node_bed import Node, Run

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.node.rank import process
from jupyter_gpu_release.protocol.node import NodeMessage, RunPhase

#: a cell's process that does not end by itself; it holds a lock
_STAYS = """
import fcntl, os, time
os._exit = lambda code: time.sleep(1000)
while not os.path.exists({go!r}):
    time.sleep(0.01)
if os.environ.get("RANK", "0") == "0":
    fcntl.flock(_held := os.open({lock!r}, os.O_RDWR), fcntl.LOCK_EX)
    print(os.getpid())
"""


Until = Callable[[Callable[[], object], str], None]


class _AtRelease:
    """What was so when the node said that the GPUs are free."""

    def __init__(self, run: Run, lock: Path) -> None:
        self.lives = self.is_locked = True
        self._run = run
        self._lock = lock
        self._tell = run.on_node._tell_gateway
        run.on_node._tell_gateway = self._look

    def _look(self, message: NodeMessage) -> None:
        if isinstance(message, RunPhase) and message.phase == "released":
            self.lives = not process_control.is_gone(int(self._run.text()))
            with self._lock.open() as file, contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.is_locked = False
        self._tell(message)


def _ended(node: Node, until: Until, more: str, **options: object) -> _AtRelease:
    lock, go = node.store / "lock", node.store / "go"
    lock.touch()
    go.unlink(missing_ok=True)
    run = node.start(_STAYS.format(lock=str(lock), go=str(go)) + more, **options)
    seen = _AtRelease(run, lock)
    go.touch()
    assert run.wait().status == "ok"
    assert not seen.is_locked
    pid = int(run.text())
    until(lambda: process_control.is_gone(pid), "its supervisor has ended it")
    return seen


def _is_released_early(node: Node, until: Until, more: str) -> bool:
    """Its supervisor ends it right after, and a busy agent may hear of the release only then: so try several."""
    return any(_ended(node, until, more).lives for _ in range(12))


def test_a_process_that_holds_nothing_but_memory_counts_as_gone(node: Node, until: Until) -> None:
    assert _is_released_early(node, until, "x = 1")


#: the process that writes the value gets to close what it got with the fork late
_LATE_PERSISTER = """
import gc
_pid, _disable = os.getpid(), gc.disable
gc.disable = lambda: (os.getpid() == _pid or time.sleep(0.3), _disable())
x = bytes(2 << 20)
"""


def test_a_lock_is_free_at_the_release_although_another_process_writes_the_value(node: Node, until: Until) -> None:
    assert _is_released_early(node, until, _LATE_PERSISTER)


_NAMELESS_THREAD = """
import _thread
_began = []
_thread.start_new_thread(lambda: (_began.append(True), time.sleep(1000)), ())
while not _began:
    time.sleep(0.01)
"""

#: no code of Python's runs in it
_NATIVE_THREAD = """
import _thread, ctypes, socket
_server = socket.create_server(("127.0.0.1", 0))
_thread.start_new_thread(ctypes.CDLL(None).accept, (_server.fileno(), 0, 0))
"""


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ("import subprocess; _left = subprocess.Popen(['sleep', '1000'])", {}),
        ("x = 1", {"ranks": 2, "gpu_ids": ["0", "1"]}),
        ("import threading; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", {}),
        (_NAMELESS_THREAD, {}),
        (_NATIVE_THREAD, {}),
    ],
    ids=[
        "a child is left",
        "a gang",
        "a thread could take the GPU",
        "a thread without a name could",
        "a library waits at a port",
    ],
)
def test_where_something_may_hold_the_gpus_only_the_end_counts(
    node: Node, until: Until, more: str, options: dict[str, object]
) -> None:
    assert not _ended(node, until, more, **options).lives


def test_an_open_device_may_hold_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "nvidia0"
    device.write_bytes(b"\0" * 4096)
    monkeypatch.setattr(process, "_DEVICES", (str(device),))
    monkeypatch.setattr(process, "has_threads", lambda: False)
    assert not process.may_hold_gpu()
    with device.open("rb") as file:
        assert process.may_hold_gpu()
        mapped = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
    assert process.may_hold_gpu()
    mapped.close()
    assert not process.may_hold_gpu()


def test_what_an_exit_handler_of_the_cell_writes_is_in_its_file(node: Node) -> None:
    log = node.store / "log"
    run = node.run(f"import atexit\n_file = open({str(log)!r}, 'w')\natexit.register(_file.write, 'the end')")
    assert run.wait().status == "ok"
    assert log.read_text() == "the end"


#: the process waits until the thread that publishes has met its closed file
_PUBLISHES = """
import threading, jupyter_gpu_release
from jupyter_gpu_release.host import process_control
_close = process_control.close_files
def _close_and_wait(but):
    _close(but=but)
    for thread in threading.enumerate():
        if thread.name == "jgr-publish":
            thread.join()
process_control.close_files = _close_and_wait
jupyter_gpu_release.publish(x=1)
"""


def test_a_thread_of_ours_that_meets_its_closed_file_says_nothing_in_the_cell(node: Node) -> None:
    run = node.run(_PUBLISHES)
    assert run.wait().status == "ok"
    assert run.text("stderr") == ""


_NO_THREAD = """
import threading
_start = threading.Thread.start
def start(self):
    if self.name == "jgr-closer":
        raise RuntimeError("can't start new thread")
    _start(self)
threading.Thread.start = start
_file = open({log!r}, "w")
"""


def test_a_process_that_gets_no_thread_to_close_its_files_ends_as_any_other(node: Node) -> None:
    run = node.run(_NO_THREAD.format(log=str(node.store / "left")))
    assert run.wait().status == "ok"
    assert run.text("stderr") == ""
