"""Starting, finding and ending the embedded cluster: real Ray, real daemon, real kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from embedded_bed import members, mode, named, quiet
from soak import thorough

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.autostart import Failed, Progress, Ready, StartLine, start_local_cluster
from jupyter_gpu_release.client.home import Connection, HomePaths, read_secret, write_secret
from jupyter_gpu_release.errors import ClusterError, ImpossibleAskError, OptionError, StoreError
from jupyter_gpu_release.host.process_control import is_gone
from jupyter_gpu_release.local_cluster.processes import cluster_processes, marker_of
from jupyter_gpu_release.local_cluster.start import StartOptions, running_connection, start_embedded

pytestmark = pytest.mark.timeout(900)  # clusters of their own: 15 s, minutes on a machine that is busy
Until = Callable[[Callable[[], object], str], None]


def _start(home: HomePaths) -> Connection:
    return start_embedded(home=home, asked=StartOptions(simulated=2), progress=quiet).connection


def _cli(*words: str, home: HomePaths | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({"JUPYTER_GPU_HOME": str(home.root)} if home else {})}
    command = [sys.executable, "-m", "jupyter_gpu_release.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def _assert_gone(connection: Connection) -> None:
    assert members(connection) == []
    assert not Path(connection.runtime).exists()


@pytest.fixture
def unready_home(own_home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HomePaths:
    """A home whose cluster never becomes ready: however late it is stopped, that is during its start."""
    (tmp_path / "never_ready.py").write_text("import time\ntime.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("JUPYTER_GPU_PRELOAD", "never_ready")
    return own_home


@pytest.mark.slow("a cluster of its own")
def test_two_starts_at_once_start_one_and_stop_ends_it(own_home: HomePaths, capsys: pytest.CaptureFixture[str]) -> None:
    own_home.create()
    write_secret(own_home.token, "readable")
    own_home.token.chmod(0o644)
    own_home.write_connection(
        Connection(
            url="http://127.0.0.1:9",
            token_file="",
            store="",
            cluster="dead",
            runtime="/tmp/jgr-dead0000",
            daemon_pid=os.getpid(),  # its number belongs to somebody else now
        )
    )
    both = [_cli("start", "--progress-json", home=own_home) for _ in range(2)]
    outputs = [process.communicate(timeout=200) for process in both]
    lines = [[msgspec.json.decode(line, type=StartLine) for line in out.splitlines()] for out, _ in outputs]
    ends = [line[-1] for line in lines]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert all(isinstance(line, Ready) for line in ends)
    assert sorted(end.started for end in ends if isinstance(end, Ready)) == [False, True]
    waited = Progress("waiting for another start")
    assert any(line.text == waited.text for said in lines for line in said if isinstance(line, Progress))
    connection = own_home.read_connection()
    assert connection is not None
    assert mode(own_home.token) == 0o600
    assert read_secret(own_home.token) != "readable"
    assert len(members(connection)) > 5
    assert main(["stop"]) == 0
    ended = re.search(r"(\d+) processes ended", capsys.readouterr().out)
    assert ended is not None
    assert int(ended[1]) > 5  # how many exactly changes: ranks stand by a moment after the start
    _assert_gone(connection)
    assert not own_home.connection.exists()
    assert main(["stop"]) == 0
    assert capsys.readouterr().out == "No cluster was running.\n"


@pytest.mark.slow("a cluster of its own")
def test_stop_after_the_daemon_was_killed(
    own_home: HomePaths, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = _start(own_home)
    os.kill(connection.daemon_pid, signal.SIGKILL)
    until(lambda: running_connection(own_home) is None, "the daemon's death")
    assert main(["status"]) == 1
    assert "has died" in capsys.readouterr().err
    assert main(["doctor"]) == 1
    assert main(["stop"]) == 0
    _assert_gone(connection)


@pytest.mark.parametrize("number", [signal.SIGINT, *thorough(signal.SIGTERM)])
def test_an_interrupted_start_leaves_nothing(number: signal.Signals, unready_home: HomePaths, until: Until) -> None:
    process = _cli("start", "--simulated-gpus", "1", home=unready_home)
    cluster: set[str] = set()

    def ray_is_there() -> bool:
        cluster.update(marker_of(child.pid) for child in psutil.Process(process.pid).children(recursive=True))
        return bool(named("raylet", (pid for marker in cluster - {""} for pid in cluster_processes(marker))))

    until(ray_is_there, "a raylet")
    process.send_signal(number)
    process.communicate(timeout=180)
    assert process.returncode == 130
    assert [pid for marker in cluster - {""} for pid in cluster_processes(marker)] == []
    assert not unready_home.connection.exists()


@pytest.mark.thorough
def test_a_killed_starter_is_no_harm_and_when_ray_dies_the_daemon_ends_the_rest(
    own_home: HomePaths, until: Until
) -> None:
    """The daemon goes on; the next start waits for it and uses it."""
    process = _cli("start", "--simulated-gpus", "1", home=own_home)
    until(lambda: "starting Ray" in _daemon_log(own_home), "the daemon")
    process.kill()
    process.communicate()
    ready = start_embedded(home=own_home, asked=StartOptions(), progress=quiet)
    assert not ready.started
    connection = ready.connection
    (raylet,) = named("raylet", (member.pid for member in members(connection)))
    raylet.kill()
    until(lambda: is_gone(connection.daemon_pid), "the daemon to end")
    _assert_gone(connection)
    assert not own_home.connection.exists()
    assert f"raylet (pid {raylet.pid}) ended by itself, killed by signal 9" in _daemon_log(own_home)
    assert list((own_home.log / "ray-of-the-last-crash").glob("raylet*"))


@pytest.mark.thorough
def test_a_daemon_killed_during_start_is_reported(unready_home: HomePaths) -> None:
    told: list[str] = []

    def kill_daemon(text: str) -> None:
        told.append(text)
        if text.startswith("starting Ray"):
            daemons = [
                child for child in psutil.Process().children() if "local_cluster.daemon" in " ".join(child.cmdline())
            ]
            max(daemons, key=psutil.Process.create_time).kill()  # not that of the session's cluster

    with pytest.raises(ClusterError, match="the start was stopped"):
        start_embedded(home=unready_home, asked=StartOptions(simulated=1), progress=kill_daemon)
    assert told
    assert not unready_home.connection.exists()


def test_more_real_gpus_than_there_are(own_home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ImpossibleAskError, match="--gpus 64: this machine has 0 usable NVIDIA GPUs"):
        start_embedded(home=own_home, asked=StartOptions(gpus=64), progress=quiet)


@pytest.mark.parametrize("host", ["999.1.1.1", "192.0.2.1", "no-such-host.invalid"])
def test_a_host_that_is_not_this_machine_is_named_at_once(own_home: HomePaths, host: str) -> None:
    with pytest.raises(OptionError, match=f"--host {host}") as caught:
        start_embedded(home=own_home, asked=StartOptions(host=host, simulated=1), progress=quiet)
    assert "127.0.0.1" in caught.value.hint


def test_a_store_that_cannot_be_made(own_home: HomePaths, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="file/store"):
        start_embedded(home=own_home, asked=StartOptions(store=str(tmp_path / "file" / "store")), progress=quiet)


def test_failures_are_one_line_for_programs(own_home: HomePaths) -> None:
    process = _cli("start", "--progress-json", "--gpus", "640", home=own_home)
    out, _ = process.communicate(timeout=180)
    assert process.returncode == 1
    (line,) = out.splitlines()
    failed = msgspec.json.decode(line, type=StartLine)
    assert isinstance(failed, Failed)
    assert failed.code == ImpossibleAskError.code
    with pytest.raises(ImpossibleAskError, match="--gpus 640"):
        start_local_cluster(quiet, options=["--gpus", "640"], environment={"JUPYTER_GPU_HOME": str(own_home.root)})


def _daemon_log(home: HomePaths) -> str:
    try:
        return (home.log / "cluster-daemon.log").read_text()
    except FileNotFoundError:
        return ""
