"""A running embedded cluster: its files, its processes, what the commands say about it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from embedded_bed import members, mode, quiet
from ray_bed import request

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.autostart import Ready, start_local_cluster
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import HomePaths, read_secret
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ConflictError
from jupyter_gpu_release.local_cluster.ray_head import LOOPBACK_ONLY
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded

Until = Callable[[Callable[[], object], str], None]


@pytest.fixture(autouse=True)
def home(cluster: Ready, monkeypatch: pytest.MonkeyPatch) -> HomePaths:
    """The session cluster's home, named by the environment."""
    paths = HomePaths(Path(cluster.connection.token_file).parent)
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(paths.root))
    return paths


def test_files_are_private(cluster: Ready, home: HomePaths) -> None:
    connection = cluster.connection
    assert mode(home.root) == mode(Path(connection.runtime)) == mode(Path(connection.store)) == 0o700
    for path in (home.connection, home.token, home.ray_token):
        assert mode(path) == 0o600


def test_no_secret_in_the_connection_file_logs_and_command_lines(cluster: Ready, home: HomePaths) -> None:
    tokens = [read_secret(home.token), read_secret(home.ray_token)]
    texts = [path.read_text() for path in (home.connection, home.gateway_config, home.log / "cluster-daemon.log")]
    for process in members(cluster.connection):
        with contextlib.suppress(psutil.NoSuchProcess, OSError):  # it ended meanwhile
            texts += [" ".join(process.cmdline()), Path(f"/proc/{process.pid}/environ").read_text(errors="replace")]
    assert len(texts) > 10
    assert not [text for text in texts for token in tokens if token in text]


def test_the_environment_of_who_started_it_is_not_everybodys(cluster: Ready) -> None:
    """pytest's own variable stands for whatever else was in that shell."""
    assert "PYTEST_VERSION" in os.environ
    seen = []
    for process in members(cluster.connection):
        with contextlib.suppress(psutil.NoSuchProcess, OSError):  # it ended meanwhile
            seen.append(Path(f"/proc/{process.pid}/environ").read_bytes())
    assert any(b"PATH=" in environment for environment in seen)
    assert not [environment for environment in seen if b"PYTEST_VERSION" in environment]


def test_everything_listens_on_loopback_only(cluster: Ready) -> None:
    listening = []
    for process in members(cluster.connection):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile
            sockets = process.net_connections("inet")
            listening += [(process.name(), each.laddr.ip) for each in sockets if each.status == psutil.CONN_LISTEN]
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert {address.removeprefix("::ffff:") for _, address in listening} <= {"127.0.0.1", "::1"}


def test_ray_runs_without_what_nobody_asks(cluster: Ready) -> None:
    """Each of these takes a second of the start."""
    commands = [" ".join(process.cmdline()) for process in members(cluster.connection)]
    assert any("raylet" in command for command in commands)
    assert not [command for command in commands if "dashboard.py" in command or "log_monitor" in command]


_RAY_JOB = """
import os, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
task = ray.remote(num_cpus=0, runtime_env={"env_vars": {"OF_THE_JOB": "there"}})(lambda: os.environ["OF_THE_JOB"])
print(ray.get(task.remote(), timeout=120))
"""


def test_rays_agents_step_back_and_serve_a_users_own_ray_job(cluster: Ready, home: HomePaths) -> None:
    """Its runtime environment is made by an agent whose port the raylet was told before there was an agent."""
    agents = [process for process in members(cluster.connection) if "Agent" in " ".join(process.cmdline())]
    rays = [process for process in agents if "NodeAgent" not in " ".join(process.cmdline())]
    assert len(rays) == 2
    assert min(process.nice() for process in rays) > psutil.Process(cluster.connection.daemon_pid).nice()
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(home.ray_token), **LOOPBACK_ONLY}
    job = [sys.executable, "-c", _RAY_JOB, cluster.connection.ray_address]
    done = subprocess.run(job, capture_output=True, text=True, env={**os.environ, **own}, check=False)
    assert done.stdout.strip() == "there", done.stderr


def test_a_second_start_reuses_it(cluster: Ready, home: HomePaths) -> None:
    again = start_embedded(home=home, asked=StartOptions(), progress=quiet)
    assert not again.started
    assert again.connection == cluster.connection


def test_a_start_of_another_shape_is_refused(tmp_path: Path, home: HomePaths) -> None:
    with pytest.raises(ConflictError, match="a cluster with the store"):
        start_embedded(home=home, asked=StartOptions(store=str(tmp_path)), progress=quiet)
    with pytest.raises(ConflictError, match="simulated GPUs runs already"):
        start_embedded(home=home, asked=StartOptions(gpus=1), progress=quiet)
    with pytest.raises(ConflictError, match="4 simulated GPUs runs already"):
        start_embedded(home=home, asked=StartOptions(simulated=8), progress=quiet)
    with pytest.raises(ConflictError, match=r"listens on 127\.0\.0\.1 alone runs already"):
        start_embedded(home=home, asked=StartOptions(host="0.0.0.0"), progress=quiet)
    with pytest.raises(ConflictError, match="its gateway at http"):
        start_embedded(home=home, asked=StartOptions(port=1, simulated=4), progress=quiet)


def test_another_process_finds_it_too(cluster: Ready, home: HomePaths) -> None:
    told: list[str] = []
    ready = start_local_cluster(told.append, environment={"JUPYTER_GPU_HOME": str(home.root)})
    assert ready.connection == cluster.connection
    assert not ready.started


def test_status_document(cluster: Ready, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["simulated"] is True
    assert document["gateway"]["up"] is True
    assert document["gateway"]["url"] == cluster.connection.url
    assert document["gpus"]["total"] == 4
    assert [len(node["gpus"]) for node in document["nodes"]] == [4]
    gpu = document["nodes"][0]["gpus"][0]
    assert {"index", "uuid", "name", "memory_bytes", "used_bytes", "utilization", "state", "user", "run"} <= set(gpu)
    assert isinstance(document["queue"], list)
    assert isinstance(document["runs"], list)


def test_status_and_runs_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert "4 simulated GPUs" in capsys.readouterr().out
    assert main(["runs"]) == 0
    assert capsys.readouterr().out  # titles of cells among it, with braces of theirs
    assert main(["runs", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert isinstance(document["runs"], list)


@pytest.mark.parametrize("command", ["cancel", "runs show"])
def test_an_unknown_run_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "20200101-000000-00000000"]) == 1
    assert "20200101-000000-00000000" in capsys.readouterr().err


@pytest.fixture
def session(cluster: Ready) -> Iterator[GatewaySession]:
    connection = cluster.connection
    target = Target(connection.url, read_secret(Path(connection.token_file)))
    session = GatewaySession(target, f"test-{secrets.token_hex(4)}")
    session.connect(60.0)
    yield session
    session.close()


def test_a_run_is_seen_cancelled_and_shown(
    session: GatewaySession, capsys: pytest.CaptureFixture[str], until: Until
) -> None:
    def ask(*words: str) -> Any:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    asked = request("import time\ntime.sleep(600)", "test", gpus=3, name="sleeper")
    session.submit(asked)
    until(lambda: [run["state"] for run in ask("status")["runs"]] == ["running"], "the run")
    assert ask("status")["gpus"] == {"total": 4, "held": 3, "free": 1, "external": 0, "warm": 0}
    waiting = request("pass", "test", gpus=2)
    session.submit(waiting)
    until(lambda: any(row["reason"] for row in ask("status")["queue"]), "the second run in the queue")
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

    def states() -> list[str]:
        found = {run["run"]: run["state"] for run in ask("runs")["runs"]}
        return [found[asked.run], found[waiting.run]]

    until(lambda: states() == ["cancelled", "succeeded"], "both runs to end")
    assert ask("status")["gpus"]["held"] == 0
    (shown,) = ask("runs", "show", asked.run)["runs"]
    assert shown["name"] == "sleeper"
    assert shown["held_s"] > 0
    assert shown["release_ms"] is not None
    assert main(["runs", "show", asked.run]) == 0
    assert "cancelled" in capsys.readouterr().out
    assert main(["cancel", asked.run]) == 0
    assert capsys.readouterr().out == f"{asked.run} is over already: cancelled.\n"


def test_what_is_no_run_id_is_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", "../status"]) == 1
    assert "../status is not the id of a run" in capsys.readouterr().err


def test_a_wrong_token_is_said(
    cluster: Ready, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_URL", cluster.connection.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "wrong")
    assert main(["status"]) == 1
    error = capsys.readouterr().err
    assert "token" in error
    assert "wrong" not in error.replace("wrong token", "")


def test_doctor_is_content_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    findings = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    for check in ("cluster", "gateway", "versions", "nodes", "store", "gc"):
        assert findings[check]["level"] == "ok", findings[check]
