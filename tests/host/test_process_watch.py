"""Looking again and again sees what a fresh look would see: starts, ends, orphans, ids that are given out anew."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jupyter_gpu_release.host.processes import ProcessTable, ProcessWatch

Until = Callable[[Callable[[], object], str], None]


def test_real_processes_that_start_and_end_are_seen(until: Until) -> None:
    watch = ProcessWatch()
    watch.read_processes()
    code = "import os, time\nif os.fork() == 0: time.sleep(1000)\nprint(os.getpid(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        tree = watch.read_processes().tree(child.pid)
        (grandchild,) = tree - {child.pid}
        assert watch.read_processes().get(grandchild) == ProcessTable.read().get(grandchild)
    until(lambda: psutil.Process(grandchild).ppid() != child.pid, "the orphan's adoption")
    table = watch.read_processes()
    assert table.get(child.pid) is None
    assert table.get(grandchild) == ProcessTable.read().get(grandchild)  # with its new parent
    os.kill(grandchild, 9)
    until(lambda: not psutil.pid_exists(grandchild), "the grandchild's end")
    assert watch.read_processes().get(grandchild) is None


class Proc:
    """A folder like ``/proc``; counts nothing, so that what was not read anew is seen by its old content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sys" / "kernel").mkdir(parents=True)
        self.last(100)

    def last(self, pid: int) -> None:
        (self.folder / "sys" / "kernel" / "ns_last_pid").write_text(f"{pid}\n")

    def put(self, pid: int, parent: int, start: int) -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        rest = " ".join(["0"] * 15)
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 0 {pid} {rest} {start}00 0 0\n")

    def end(self, pid: int) -> None:
        (self.folder / str(pid) / "stat").unlink()
        (self.folder / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_what_cannot_have_changed_is_not_read_again(proc: Proc) -> None:
    proc.put(10, 1, 5)
    proc.put(11, 10, 6)
    watch = ProcessWatch(proc.folder)
    first = watch.read_processes()
    assert watch.read_processes() is first
    proc.put(11, 10, 99)  # impossible: its number was not given out again
    assert watch.read_processes() is first
    proc.last(110)
    proc.put(105, 11, 7)
    second = watch.read_processes()
    assert second.tree(10) == {10, 11, 105}
    assert (second.get(11), first.get(105)) == (first.get(11), None)


@pytest.mark.parametrize(("before", "after"), [(100, 120), (30000, 110)])
def test_an_id_that_is_given_out_anew_is_another_process(proc: Proc, before: int, after: int) -> None:
    """Also when the numbers began again at the lowest meanwhile."""
    proc.put(105, 1, 5)
    proc.put(50, 105, 6)
    proc.last(before)
    watch = ProcessWatch(proc.folder)
    first = watch.read_processes()
    proc.put(105, 7, 99)
    proc.put(50, 1, 6)  # the child of the one that is gone was adopted
    proc.last(after)
    table = watch.read_processes()
    assert first.get(105) != table.get(105)
    assert table.get(105) == ProcessTable.read(proc.folder).get(105)
    assert table.get(50) == ProcessTable.read(proc.folder).get(50)


def test_an_orphans_new_parent_is_seen(proc: Proc) -> None:
    proc.put(10, 1, 5)
    proc.put(11, 10, 6)
    watch = ProcessWatch(proc.folder)
    assert watch.read_processes().tree(10) == {10, 11}
    proc.end(10)
    proc.put(11, 1, 6)
    assert watch.read_processes().get(11) == ProcessTable.read(proc.folder).get(11)


def test_a_system_that_does_not_tell_the_last_id_is_read_whole(proc: Proc) -> None:
    (proc.folder / "sys" / "kernel" / "ns_last_pid").unlink()
    proc.put(10, 1, 5)
    watch = ProcessWatch(proc.folder)
    watch.read_processes()
    proc.put(10, 1, 99)
    assert watch.read_processes().get(10) == ProcessTable.read(proc.folder).get(10)
    assert ProcessWatch(proc.folder / "nowhere").read_processes().processes == {}
