"""Finding and ending the processes of a cluster, with real processes."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.host.process_control import CLUSTER_MARKER, is_gone
from jupyter_gpu_release.local_cluster import processes
from jupyter_gpu_release.local_cluster.processes import (
    cluster_processes,
    daemon_alive,
    marked_clusters,
    remove_folder,
    sweep,
)

Until = Callable[[Callable[[], object], str], None]
Spawn = Callable[..., subprocess.Popen[bytes]]

_SLEEP = "import time; print('up', flush=True); time.sleep(600)"
_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _SLEEP
_PARENT = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], env={}, start_new_session=True)\n"
    "print(child.pid, flush=True); child.wait()"
)
# an unmarked orphan in the session of a marked process
_SESSION_LEADER = """
import os, subprocess, sys, time
environment = {key: value for key, value in os.environ.items() if key != "JUPYTER_GPU_CLUSTER"}
middle = '''
import subprocess, sys
sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
print(subprocess.Popen(sleeper, stdout=subprocess.DEVNULL).pid)
'''
print(subprocess.check_output([sys.executable, "-c", middle], env=environment).decode().strip(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def cluster_id() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def spawn(cluster_id: str) -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str, *, marked: bool = True, **options: object) -> subprocess.Popen[bytes]:
        environment = {**os.environ, CLUSTER_MARKER: cluster_id} if marked else dict(os.environ)
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            env=environment,
            **options,  # type: ignore[call-overload]
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def test_marked_processes_and_their_descendants_are_found(spawn: Spawn, cluster_id: str) -> None:
    parent = spawn(_PARENT)
    unmarked_child = int(_line(parent))
    stranger = spawn(_SLEEP, marked=False)
    found = set(cluster_processes(cluster_id))
    assert found == {parent.pid, unmarked_child}
    assert parent.pid in marked_clusters()[cluster_id]
    assert sweep(cluster_id) == 2
    assert is_gone(unmarked_child)
    assert not is_gone(stranger.pid)


def test_the_session_counts_when_a_marked_process_is_in_it(spawn: Spawn, cluster_id: str) -> None:
    leader = spawn(_SESSION_LEADER, start_new_session=True)
    orphan = int(_line(leader))
    assert orphan not in set(cluster_processes(cluster_id))
    assert orphan in cluster_processes(cluster_id, leader.pid)
    sweep(cluster_id, leader.pid)
    assert is_gone(orphan)


def test_a_session_number_alone_ends_nobody(spawn: Spawn, cluster_id: str) -> None:
    """After a reboot the daemon's number may be that of somebody's terminal."""
    stranger = spawn(_SLEEP, marked=False, start_new_session=True)
    assert _line(stranger) == "up"
    assert cluster_processes(cluster_id, stranger.pid) == []
    assert sweep(cluster_id, stranger.pid) == 0
    assert not is_gone(stranger.pid)


def test_what_ignores_sigterm_is_killed(spawn: Spawn, cluster_id: str) -> None:
    stubborn = spawn(_STUBBORN)
    assert _line(stubborn) == "up"
    assert sweep(cluster_id, grace_s=0.2) == 1
    assert is_gone(stubborn.pid)


def test_daemon_alive_wants_the_same_cluster(spawn: Spawn, cluster_id: str, until: Until) -> None:
    process = spawn(_SLEEP)
    assert _line(process) == "up"
    assert daemon_alive(process.pid, cluster_id)
    assert not daemon_alive(process.pid, secrets.token_hex(8))
    assert not daemon_alive(0, cluster_id)
    process.kill()
    process.wait()
    assert not daemon_alive(process.pid, cluster_id)


def test_a_zombie_is_not_alive(spawn: Spawn, until: Until) -> None:
    process = spawn(_SLEEP)
    process.kill()  # nobody waits for it: it stays in the process table
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split(")")[1].split()[0] == "Z", "the zombie")
    assert is_gone(process.pid)


_WRITER = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1]) / "ray" / "logs"
print("up", flush=True)
end = time.monotonic() + 0.4
while time.monotonic() < end:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(time.monotonic_ns())).touch()
    except OSError:
        pass
"""


def test_a_folder_is_removed_while_a_dying_process_writes_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "jgr-0"
    folder.mkdir()
    (folder / "cluster-daemon.json").write_text("{}")
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(folder)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    remove_folder(folder)
    writer.communicate()
    remove_folder(folder)
    assert not folder.exists()


def test_the_plan_of_a_folder_that_cannot_be_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "jgr-0"
    (folder / "ray").mkdir(parents=True)
    (folder / "cluster-daemon.json").write_text("{}")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        remove_folder(folder)
    assert (folder / "cluster-daemon.json").exists()
    remove_folder(folder)
    assert not folder.exists()


class _Clock:
    """Time passes only where somebody waits for persisters, which write for ``rounds``."""

    def __init__(self, rounds: int, patch: pytest.MonkeyPatch) -> None:
        self.now_s, self.rounds, self.written = 0.0, rounds, 0
        patch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        patch.setattr(processes, "_wait_gone", self._wait_gone)
        patch.setattr(processes, "_written", lambda _process: self.written)

    def _wait_gone(self, found: list[Any], _limit_s: float) -> list[Any]:
        self.now_s += 10.0
        self.rounds -= 1
        self.written += max(self.rounds, 0) and 1
        return found if self.rounds else []


def test_results_that_are_being_written_are_waited_for_however_long_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(30, monkeypatch)
    persister: Any = object()
    processes._wait_spilled([persister])
    assert clock.rounds == 0


def test_a_persister_that_writes_nothing_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(0, monkeypatch)
    persister: Any = object()
    processes._wait_spilled([persister])
    assert 15.0 <= clock.now_s <= 30.0
