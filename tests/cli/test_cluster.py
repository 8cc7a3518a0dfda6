"""Starting, finding and ending the embedded cluster: real Ray, real keeper, real kills."""

from __future__ import annotations

import json
import os
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from ray_bed import request

from jupyter_gpu_release.cli.embedded import running_connection, start_embedded, stop_embedded
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.cli.processes import cluster_processes, is_alive, marker_of
from jupyter_gpu_release.client.autostart import Failed, Progress, Ready, StartLine, start_local_cluster
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import Connection, HomePaths, read_secret, write_secret
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ClusterError, ConflictError, ImpossibleAskError, StoreError

Until = Callable[[Callable[[], object], str], None]


def _quiet(text: str) -> None:
    """Progress that nobody reads."""


def _start(home: HomePaths) -> Connection:
    return start_embedded(home=home, simulated=2, progress=_quiet).connection


def _members(connection: Connection) -> list[psutil.Process]:
    pids = cluster_processes(connection.cluster, connection.keeper_pid, connection.runtime)
    return [psutil.Process(pid) for pid in pids]


def _home_of(cluster: Ready) -> HomePaths:
    return HomePaths(Path(cluster.connection.token_file).parent)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _cli(*words: str, home: HomePaths | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({"JUPYTER_GPU_HOME": str(home.root)} if home else {})}
    command = [sys.executable, "-m", "jupyter_gpu_release.cli", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def _assert_gone(connection: Connection) -> None:
    assert _members(connection) == []
    assert not Path(connection.runtime).exists()


# ------------------------------------------------------------------------- with the session's cluster
def test_files_are_private(cluster: Ready) -> None:
    home, connection = _home_of(cluster), cluster.connection
    assert _mode(home.root) == _mode(Path(connection.runtime)) == _mode(Path(connection.store)) == 0o700
    for path in (home.connection, home.token, home.ray_token):
        assert _mode(path) == 0o600


def test_no_secret_in_the_connection_file_logs_and_command_lines(cluster: Ready) -> None:
    home = _home_of(cluster)
    tokens = [read_secret(home.token), read_secret(home.ray_token)]
    texts = [path.read_text() for path in (home.connection, home.gateway_config, home.log / "keeper.log")]
    for process in _members(cluster.connection):
        texts += [" ".join(process.cmdline()), Path(f"/proc/{process.pid}/environ").read_text(errors="replace")]
    assert not [text for text in texts for token in tokens if token in text]


def test_everything_listens_on_loopback_only(cluster: Ready) -> None:
    listening = [
        (process.name(), socket.laddr.ip)
        for process in _members(cluster.connection)
        for socket in process.net_connections("inet")
        if socket.status == psutil.CONN_LISTEN
    ]
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert {address.removeprefix("::ffff:") for _, address in listening} <= {"127.0.0.1", "::1"}


def test_a_second_start_reuses_it(cluster: Ready) -> None:
    again = start_embedded(home=_home_of(cluster), progress=_quiet)
    assert not again.started
    assert again.connection == cluster.connection


def test_a_start_of_another_shape_is_refused(cluster: Ready, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="a cluster with the store"):
        start_embedded(home=_home_of(cluster), store=str(tmp_path), progress=_quiet)
    with pytest.raises(ConflictError, match="simulated GPUs runs already"):
        start_embedded(home=_home_of(cluster), gpus=1, progress=_quiet)


def test_another_process_finds_it_too(cluster: Ready) -> None:
    told: list[str] = []
    ready = start_local_cluster(told.append, environment={"JUPYTER_GPU_HOME": str(_home_of(cluster).root)})
    assert ready.connection == cluster.connection
    assert not ready.started


def test_status_document(cluster: Ready, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(_home_of(cluster).root))
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["simulated"] is True
    assert document["gateway"]["up"] is True
    assert document["gateway"]["url"] == cluster.connection.url
    assert document["gpus"]["total"] == 4
    assert [len(node["gpus"]) for node in document["nodes"]] == [4]
    card = document["nodes"][0]["gpus"][0]
    assert {"index", "uuid", "name", "memory_bytes", "used_bytes", "utilization", "state", "user", "run"} <= set(card)
    assert isinstance(document["queue"], list)
    assert isinstance(document["runs"], list)


def test_status_and_runs_for_people(
    cluster: Ready, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(_home_of(cluster).root))
    assert main(["status"]) == 0
    assert "4 simulated GPUs" in capsys.readouterr().out
    assert main(["runs"]) == 0
    assert main(["runs", "--json"]) == 0
    out = capsys.readouterr().out
    document = json.loads(out[out.index("{") :])
    assert document["schema_version"] == 1
    assert isinstance(document["runs"], list)


@pytest.mark.parametrize("command", ["cancel", "runs show"])
def test_an_unknown_run_is_named(
    command: str, cluster: Ready, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(_home_of(cluster).root))
    assert main([*command.split(), "20200101-000000-00000000"]) == 1
    assert "20200101-000000-00000000" in capsys.readouterr().err


@pytest.fixture
def session(cluster: Ready) -> Iterator[GatewaySession]:
    connection = cluster.connection
    target = Target(connection.url, read_secret(Path(connection.token_file)))
    session = GatewaySession(target, f"test-{secrets.token_hex(4)}")
    session.connect()
    yield session
    session.close()


def test_a_run_is_seen_cancelled_and_shown(
    cluster: Ready,
    session: GatewaySession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    until: Until,
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(_home_of(cluster).root))

    def ask(*words: str) -> Any:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    asked = request("import time\ntime.sleep(600)", "test", gpus=3, name="sleeper")
    session.submit(asked)
    until(lambda: [run["state"] for run in ask("status")["runs"]] == ["running"], "the run")
    assert ask("status")["gpus"] == {"total": 4, "held": 3, "free": 1, "external": 0}
    waiting = request("pass", "test", gpus=2)
    session.submit(waiting)
    until(lambda: ask("status")["queue"], "the second run in the queue")
    (queued,) = ask("status")["queue"]
    assert (queued["run"], queued["position"], queued["gpus"]) == (waiting.run, 1, 2)
    assert queued["reason"]
    assert main(["status"]) == 0
    people = capsys.readouterr().out
    assert "3 held, 1 free" in people
    assert asked.run in people
    assert waiting.run in people
    assert main(["cancel", asked.run]) == 0
    assert "is being ended" in capsys.readouterr().out
    until(lambda: not ask("status")["runs"], "both runs to end")
    assert ask("status")["gpus"]["held"] == 0
    assert {run["run"]: run["state"] for run in ask("runs")["runs"]} == {
        asked.run: "cancelled",
        waiting.run: "succeeded",
    }
    (shown,) = ask("runs", "show", asked.run)["runs"]
    assert shown["name"] == "sleeper"
    assert shown["held_s"] > 0
    assert shown["release_ms"] is not None
    assert main(["runs", "show", asked.run]) == 0
    assert "cancelled" in capsys.readouterr().out
    assert main(["cancel", asked.run]) == 0
    assert capsys.readouterr().out == f"{asked.run} is over already: cancelled.\n"


def test_what_is_no_run_id_is_not_sent(
    cluster: Ready, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(_home_of(cluster).root))
    assert main(["cancel", "../status"]) == 1
    assert "../status is not the id of a run" in capsys.readouterr().err


def test_a_wrong_token_is_said(
    cluster: Ready, own_home: HomePaths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_URL", cluster.connection.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "wrong")
    assert main(["status"]) == 1
    error = capsys.readouterr().err
    assert "token" in error
    assert "wrong" not in error.replace("wrong token", "")


def test_doctor_is_content_with_it(
    cluster: Ready, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(_home_of(cluster).root))
    main(["doctor", "--json"])
    findings = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    for check in ("cluster", "gateway", "versions", "nodes", "store"):
        assert findings[check]["level"] == "ok", findings[check]


# --------------------------------------------------------------------- with clusters that are ended here
@pytest.fixture
def quick_home(own_home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> HomePaths:
    """A home whose cluster preloads next to nothing, so that it starts sooner."""
    monkeypatch.setenv("JUPYTER_GPU_PRELOAD", "json")
    return own_home


def test_two_starts_at_once_start_one_and_stop_ends_it(
    quick_home: HomePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    quick_home.create()
    write_secret(quick_home.token, "readable")
    quick_home.token.chmod(0o644)
    quick_home.write_connection(
        Connection(
            url="http://127.0.0.1:9", token_file="", store="", cluster="dead", runtime="/tmp/jgr-dead0000",
            keeper_pid=os.getpid(),  # its number belongs to somebody else now
        )
    )  # fmt: skip
    both = [_cli("start", "--progress-json", home=quick_home) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    lines = [[msgspec.json.decode(line, type=StartLine) for line in out.splitlines()] for out, _ in outputs]
    ends = [line[-1] for line in lines]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert all(isinstance(line, Ready) for line in ends)
    assert sorted(end.started for end in ends if isinstance(end, Ready)) == [False, True]
    waited = Progress("waiting for another start")
    assert any(line.text == waited.text for said in lines for line in said if isinstance(line, Progress))
    connection = quick_home.read_connection()
    assert connection is not None
    assert _mode(quick_home.token) == 0o600
    assert read_secret(quick_home.token) != "readable"
    count = len(_members(connection))
    assert count > 5
    assert main(["stop"]) == 0
    assert f"{count} processes ended" in capsys.readouterr().out
    _assert_gone(connection)
    assert not quick_home.connection.exists()
    assert main(["stop"]) == 0
    assert capsys.readouterr().out == "No cluster was running.\n"


def test_stop_after_the_keeper_was_killed(
    quick_home: HomePaths, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = _start(quick_home)
    os.kill(connection.keeper_pid, signal.SIGKILL)
    until(lambda: running_connection(quick_home) is None, "the keeper's death")
    assert main(["status"]) == 1
    assert "has died" in capsys.readouterr().err
    assert main(["doctor"]) == 1
    assert main(["stop"]) == 0
    _assert_gone(connection)


def test_when_ray_dies_the_keeper_ends_the_rest(quick_home: HomePaths, until: Until) -> None:
    connection = _start(quick_home)
    (process,) = [member for member in _members(connection) if member.name() == "raylet"]
    process.kill()
    until(lambda: not is_alive(connection.keeper_pid), "the keeper to end")
    _assert_gone(connection)
    assert not quick_home.connection.exists()
    assert f"raylet (pid {process.pid}) ended by itself, killed by signal 9" in _keeper_log(quick_home)
    assert list((quick_home.log / "ray-of-the-last-crash").glob("raylet*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(number: signal.Signals, quick_home: HomePaths, until: Until) -> None:
    process = _cli("start", "--simulated-gpus", "1", home=quick_home)
    cluster: set[str] = set()

    def ray_is_there() -> bool:
        cluster.update(marker_of(child.pid) for child in psutil.Process(process.pid).children(recursive=True))
        pids = [pid for marker in cluster - {""} for pid in cluster_processes(marker)]
        return "raylet" in {process.name() for process in psutil.process_iter() if process.pid in pids}

    until(ray_is_there, "a raylet")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert [pid for marker in cluster - {""} for pid in cluster_processes(marker)] == []
    assert not quick_home.connection.exists()


def test_a_killed_starter_is_no_harm(quick_home: HomePaths, until: Until) -> None:
    """The keeper goes on; the next start waits for it and uses it."""
    process = _cli("start", "--simulated-gpus", "1", home=quick_home)
    until(lambda: "starting Ray" in _keeper_log(quick_home), "the keeper")
    process.kill()
    process.communicate()
    ready = start_embedded(home=quick_home, progress=_quiet)
    assert not ready.started
    stop_embedded(quick_home)
    _assert_gone(ready.connection)


def test_a_keeper_killed_during_start_is_reported(quick_home: HomePaths, until: Until) -> None:
    told: list[str] = []

    def kill_keeper(text: str) -> None:
        told.append(text)
        if text.startswith("starting Ray"):
            keepers = [child for child in psutil.Process().children() if "keeper" in " ".join(child.cmdline())]
            max(keepers, key=psutil.Process.create_time).kill()  # not that of the session's cluster

    with pytest.raises(ClusterError, match="the start was stopped"):
        start_embedded(home=quick_home, simulated=1, progress=kill_keeper)
    assert told
    assert not quick_home.connection.exists()


def test_more_real_gpus_than_there_are(own_home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(ImpossibleAskError, match="--gpus 64: this machine has 0 usable NVIDIA GPUs"):
        start_embedded(home=own_home, gpus=64, progress=_quiet)


def test_a_store_that_cannot_be_made(own_home: HomePaths, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="file/store"):
        start_embedded(home=own_home, store=str(tmp_path / "file" / "store"), progress=_quiet)


def test_failures_are_one_line_for_programs(own_home: HomePaths) -> None:
    process = _cli("start", "--progress-json", "--gpus", "640", home=own_home)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = out.splitlines()
    failed = msgspec.json.decode(line, type=StartLine)
    assert isinstance(failed, Failed)
    assert failed.code == ImpossibleAskError.code
    with pytest.raises(ImpossibleAskError, match="--gpus 640"):
        start_local_cluster(_quiet, options=["--gpus", "640"], environment={"JUPYTER_GPU_HOME": str(own_home.root)})


def _keeper_log(home: HomePaths) -> str:
    try:
        return (home.log / "keeper.log").read_text()
    except FileNotFoundError:
        return ""
