"""One machine's own cluster as the operators' pages start and stop it; its users are told of runs as there."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from doc_blocks import block, shell, shell_environment
from feeds import Reading
from notify_bed import HookBed, MailBed
from nvml_bed import FakeGpus, build_library
from ray_bed import request

from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.local_cluster.processes import cluster_processes

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]  # two clusters of its own
Until = Callable[[Callable[[], object], str], None]
_HELD = "import os, time\nwhile not os.path.exists({gate!r}):\n    time.sleep(0.02)"


class Machine:
    """A machine with two GPUs (of a fake NVML), on which an operator types the guide's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        library = folder / "nvml"
        library.mkdir()
        self.settings = FakeGpus(build_library(library), folder / "gpus").environment | {"JUPYTER_GPU_PRELOAD": "json"}

    def ok(self, line: str) -> str:
        done = shell(line, self.folder, **self.settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, line: str) -> str:
        done = shell(line, self.folder, **self.settings)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    def gpus(self) -> tuple[int, bool]:
        """How many the cluster has, and whether they are simulated."""
        status = json.loads(self.ok("jupyter gpu status --json"))
        return status["gpus"]["total"], status["simulated"]


@pytest.fixture
def machine(own_home: HomePaths, tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def told(machine: Machine, tmp_path: Path) -> Iterator[tuple[MailBed, HookBed]]:
    """A mail server and a proxy that stand where the guide's file has them; the machine's next start reads the file."""
    authority = Authority(tmp_path / "authority")
    by_mail, by_hook = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    by_mail.load_cert_chain(*authority.sign("mail", "localhost"))
    by_hook.load_cert_chain(*authority.sign("hook", "hooks.slack.com"))
    password = tmp_path / "smtp-password"
    password.write_text("correct horse")
    password.chmod(0o600)
    with MailBed(by_mail, password="correct horse") as mail, HookBed(tls=by_hook) as hook:
        rules = block("operate/notify.md", "# How to have users told of their runs").filled(
            {
                "smtp.example.org": "localhost",
                "port: 587 ": f"port: {mail.port} ",
                "/etc/jupyter-gpu/smtp-password": str(password),
                "http://proxy.example.org:3128": f"http://{hook.place}",
            }
        )
        (tmp_path / "notify.yaml").write_text(rules)
        machine.settings |= {"JUPYTER_GPU_NOTIFY": str(tmp_path / "notify.yaml"), "SSL_CERT_FILE": str(authority.file)}
        yield mail, hook


def test_a_cluster_is_started_watched_and_stopped(
    machine: Machine, own_home: HomePaths, told: tuple[MailBed, HookBed], until: Until, tmp_path: Path
) -> None:
    start, two, eight, status, stop, drain, at_once = block(
        "operate/one-machine.md", "# How to run a cluster on one machine"
    ).commands()
    assert "with 2 GPUs" in machine.ok(start), "all that NVML shows"
    assert "runs already" in machine.ok(two)
    assert "a cluster with real GPUs runs already" in machine.refused(eight)
    assert machine.gpus() == (2, False)
    connection = own_home.read_connection()
    assert connection is not None
    assert "Stopped the cluster" in machine.ok(stop)
    assert cluster_processes(connection.cluster) == []
    assert not Path(connection.runtime).exists()
    assert "No cluster was running" in machine.ok(stop)
    assert "No cluster was running" in machine.ok(at_once)
    assert "this machine has 2 usable NVIDIA GPUs" in machine.refused(two.replace("2", "3"))

    assert "with 8 simulated GPUs" in machine.ok(eight)
    assert machine.gpus() == (8, True)
    assert "8 simulated GPUs" in machine.ok(status)
    target = find_gateway()
    assert target is not None
    session = GatewaySession(target, "guided")
    session.connect(60.0)
    try:
        _is_told(machine, session, *told, until)
        _ends_once_what_runs_has_ended(machine, session, drain, tmp_path / "gate")
    finally:
        session.close()
    assert own_home.read_connection() is None


def _is_told(machine: Machine, session: GatewaySession, mail: MailBed, hook: HookBed, until: Until) -> None:
    """Of a detached run's end: by the mail server, with TLS and a login, and through the proxy, with TLS, by Slack."""
    machine.ok("echo https://hooks.slack.com/services/s3cret | jupyter gpu notify --email ann@example.org --webhook")
    run = request("answer = 42", session.session_id, detach=True)
    assert Reading(session.submit(run)).end().state == "succeeded"
    until(lambda: mail.mails and hook.told, "the mail and the message")
    (sent,), ((path, body),) = mail.mails, hook.told
    assert (sent["From"], sent["To"], mail.was_encrypted) == ("gpu@example.org", "ann@example.org", [True])
    assert f"https://hub.example.org/hub/user-redirect/lab?gpu-run={run.run}" in sent.get_content()
    assert path == "/services/s3cret"
    assert run.run in body["text"]


def _ends_once_what_runs_has_ended(machine: Machine, session: GatewaySession, drain: str, gate: Path) -> None:
    running = Reading(session.submit(request(_HELD.format(gate=str(gate)), session.session_id)))
    running.state("running")
    with subprocess.Popen(
        ["bash", "-euc", drain],
        env=shell_environment(**machine.settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as stopping:
        assert stopping.stderr is not None
        assert any("waiting for 1 run to end" in line for line in stopping.stderr)  # reads on to this one
        assert stopping.poll() is None
        gate.touch()
        assert running.end().state == "succeeded"
        assert stopping.wait(120) == 0
