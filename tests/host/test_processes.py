"""The process table against what the kernel and psutil say of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.host.processes import ProcessTable, cpu_s_of, environment_of, has_open, since_boot_s

Until = Callable[[Callable[[], object], str], None]


def test_this_process_is_known() -> None:
    own = ProcessTable.read().get(os.getpid())
    assert own is not None
    assert own.parent == os.getppid()
    assert own.session == os.getsid(0)
    earliest_s = since_boot_s()
    age_s = psutil.time.time() - psutil.Process().create_time()
    assert earliest_s - age_s - 2 < own.start_s < since_boot_s() - age_s + 2
    times = psutil.Process().cpu_times()
    assert abs(cpu_s_of([os.getpid()]) - times.user - times.system) < 0.5
    assert cpu_s_of([2**22 + 1]) == 0  # beyond the highest id that there can be


def test_a_tree_holds_children_and_what_stayed_in_the_session(tmp_path: Path, until: Until) -> None:
    """A worker whose parent ended is a child of init, but of the same session still."""
    pids = tmp_path / "pids"
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    parent = os.getpid()\n"
        "    if os.fork() == 0:\n"
        "        while os.getppid() == parent: time.sleep(0.01)\n"
        f"        open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(1000)\n"
        "    os._exit(0)\n"
        "time.sleep(1000)\n"
    )
    root = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        until(lambda: pids.exists() and pids.read_text(), "the orphan")
        orphan = int(pids.read_text())
        table = ProcessTable.read()
        assert {root.pid, orphan} <= table.tree(root.pid)
        assert os.getpid() not in table.tree(root.pid)
        os.kill(orphan, 9)
    finally:
        root.kill()
        root.wait()


def test_environment_and_open_files(tmp_path: Path, until: Until) -> None:
    file = tmp_path / "device0"
    file.touch()
    code = f"f = open({str(file)!r}); print(1, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "MARK": "m=1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert environment_of(process.pid)["MARK"] == "m=1"
        assert has_open(process.pid, (str(tmp_path / "device"),))
        assert not has_open(process.pid, ("/dev/nvidia-none",))
    finally:
        process.communicate()
    assert environment_of(process.pid) == {}
    assert not has_open(process.pid, (str(tmp_path),))
    assert ProcessTable.read().get(process.pid) is None


def test_an_orphan_that_moves_up_meanwhile_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    children = {1: [2], 2: [3], 3: [4]}

    def children_of(pid: int) -> list[int]:
        found = children.get(pid, [])
        children.update({1: [2, 4], 2: []})  # 3 has ended
        return found

    monkeypatch.setattr(process_control, "children_of", children_of)
    assert process_control.has_others(1, (2, 0))
    children.update({1: [2], 2: []})
    monkeypatch.setattr(process_control, "children_of", lambda pid: children.get(pid, []))
    assert not process_control.has_others(1, (2, 0))
