"""A small Ray cluster for tests of the broker, gateways on it, and a driver that looks at it from outside."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
from inspector import Inspector
from ports import free_port
from ray_imports import leave_out

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import write_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.gateway.cluster.lease_workers import THREAD
from jupyter_gpu_release.local_cluster.launch_spec import runtime_root
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.config import Deployed, GatewayConfig
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode

AGENT_FOLDER = Path(__file__).parent.parent / "gateway"
GPUS = 4
_STARTS = 3
OUR_SETTINGS = {
    "RAY_raylet_report_resources_period_milliseconds": "2",
    "RAY_kill_idle_workers_interval_ms": "0",
    "RAY_memory_monitor_refresh_ms": "0",
}


class RayBed:
    """``ray start --head`` with token authentication in a folder of its own; ``stop`` ends all its processes.

    ``settings``: variables instead of those that we set for clusters of our own.
    """

    def __init__(self, settings: Mapping[str, str] = OUR_SETTINGS, gpus: int = GPUS) -> None:
        self._gpus = gpus
        self.folder = Path(tempfile.mkdtemp(prefix="jgr-", dir=runtime_root()))
        self.marker = secrets.token_hex(8)
        write_secret(self.folder / "ray-token", secrets.token_hex(32))
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {
            "RAY_worker_niceness": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.folder / "ray-token"),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            **settings,
            "RAY_enable_metrics_collection": "0",
            "JUPYTER_GPU_CLUSTER": self.marker,
            "PYTHONPATH": f"{AGENT_FOLDER}:{leave_out(self.folder)}",
        }
        self.address = next(filter(None, (self._start() for _ in range(_STARTS))), "")
        if not self.address:
            said = (self.folder / "start.log").read_text()
            shutil.rmtree(self.folder)
            raise AssertionError(f"Ray did not start: {said}")
        self._inspector = Inspector(self.address, self.environment, self.folder / "inspector.log")

    def _start(self) -> str:
        """The address, or an empty one: Ray gives a process of its own 15 s to import what it needs."""
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--port=0",
            "--node-ip-address=127.0.0.1",
            f"--temp-dir={self.folder}/ray",
            f"--num-gpus={self._gpus}",
            "--num-cpus=2",
            "--object-store-memory=100000000",
            "--include-dashboard=false",
            "--dashboard-port=0",
            "--include-log-monitor=false",
            "--no-monitor",
            "--disable-usage-stats",
            "--labels=zone=test",
        ]
        with (self.folder / "start.log").open("a") as log:
            done = subprocess.run(command, env=self.environment, stdout=log, stderr=log, timeout=200)
        if done.returncode:
            self._kill_all()
            return ""
        return (self.folder / "ray" / "ray_current_cluster").read_text().strip()

    def ask(self, *words: str) -> Any:
        """Have the inspector look at (or change) the cluster."""
        return self._inspector.ask(*words)

    def lease_workers(self) -> set[int]:
        """Ray's worker processes that stay for lease tasks."""
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                threads = [(task / "comm").read_text() for task in Path(f"/proc/{process.pid}/task").iterdir()]
                if f"{THREAD}\n" in threads and self._is_ours(process):
                    found.add(process.pid)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        """Tell if it writes below our folder; Ray's workers overwrite their environment."""
        files = [os.readlink(file) for file in Path(f"/proc/{process.pid}/fd").iterdir()]
        return any(file.startswith(f"{self.folder}/") for file in files)

    def stop(self) -> None:
        """Kill what carries our marker and remove the folder."""
        self._inspector.close()
        self._kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_all(self) -> None:
        marker = f"JUPYTER_GPU_CLUSTER={self.marker}".encode()
        for _ in range(3):
            ours = [process for process in psutil.process_iter() if marker in _environment(process.pid)]
            for process in ours:
                with_children = [process, *_children(process)]
                for victim in with_children:
                    _kill(victim)
            psutil.wait_procs(ours, timeout=5)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


class GatewayBed:
    """A gateway with stand-in agents in a Ray namespace, a home and a store of its own."""

    def __init__(self, bed: RayBed, folder: Path, **settings: Any) -> None:
        self.bed = bed
        self.token = secrets.token_urlsafe(24)
        ca_file = settings.pop("ca_file", "")
        write_secret(folder / "home" / "token", self.token)
        self.config = GatewayConfig(
            home=str(folder / "home"),
            store=str(settings.pop("store", folder / "store")),
            token_file=str(folder / "home" / "token"),
            runtime=str(bed.folder / secrets.token_hex(3)),
            ray_address=bed.address,
            port=free_port(),
            cluster=secrets.token_hex(8),
            simulated=True,
            agent_entry="fake_agent:StandInAgent",
            ray_namespace=f"test-{secrets.token_hex(4)}",
            reconcile_interval_s=0.3,
            **settings,
        )
        self.url = self.config.url
        self.target = Target(self.url, self.token, configured=True, ca_file=ca_file)

    def deploy(self, **environment: str) -> Deployed:
        """Run the deploy command as the command line does."""
        path = Path(self.config.home) / "gateway.json"
        path.write_bytes(msgspec.json.encode(self.config))
        done = subprocess.run(
            [sys.executable, "-m", "jupyter_gpu_release.gateway.deploy", str(path)],
            env=self.bed.environment | environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.stdout.strip(), done.stderr
        answer = msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Deployed)
        assert done.returncode == (0 if answer.ok else 1)
        return answer

    def end(self) -> None:
        """Kill the gateway's and the agents' actors for good."""
        self.bed.ask("end", self.config.ray_namespace)

    def group_of(self, run: str) -> str:
        """The name of the run's placement group."""
        return f"jgr-{self.config.ray_namespace}-{run}"

    def rest(self) -> GatewayClient:
        return GatewayClient.for_target(self.target, timeout_s=60.0)

    def is_clean(self) -> bool:
        """Nothing runs, waits or is kept, and Ray has all GPUs again, as far as this gateway has heard."""
        with self.rest() as client:
            status = client.status()
        return not status.runs and status.gpus.free == GPUS and self.bed.ask("groups") == []

    def life(self) -> int | None:
        """The process id of the gateway that takes runs now, if one does."""
        with contextlib.suppress(GatewayUnavailableError), self.rest() as client:
            health = client.health()
            return health.pid if health.ready else None
        return None

    def kill_gateway(self) -> int:
        """SIGKILL; Ray restarts the actor. Returns the old process id."""
        with self.rest() as client:
            pid = client.health().pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_agent(self) -> None:
        """SIGKILL; Ray restarts the actor."""
        os.kill(int((Path(self.config.runtime) / "agent.pid").read_text()), signal.SIGKILL)

    def run_folder(self, run: str) -> Path:
        return Path(self.config.store) / "runs" / run

    def let_go(self, run: str, name: str = "go") -> None:
        """End a ``hold`` (``go``) or a ``late`` (``durable``) of the stand-in's script."""
        (self.run_folder(run) / name).touch()

    def log(self) -> str:
        return (Path(self.config.home) / "log" / "gateway.log").read_text()


def request(script: str, session: str, gpus: int = 1, **facts: Any) -> RunRequest:
    """A submission whose cell is a script of the stand-in agent."""
    ask = facts.pop("ask", None) or ResourceAsk(gpus=gpus)
    payload = encode(CellPayload(source=script))
    return RunRequest(facts.pop("run", None) or new_run_id(), session, ask, payload, code=script, **facts)


def vanish(session: GatewaySession) -> None:
    """As a kernel that is killed: never back, and no good-bye."""
    session._closed = True
    session._send_queue.put_message(None)  # its thread ends, too


_KERNEL = """
import os, sys
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.runs import RunRequest; from jupyter_gpu_release.protocol.wire import decode
from pathlib import Path
url, token, asked = sys.argv[1], Path(sys.argv[2]).read_text().strip(), decode(sys.stdin.buffer.read(), RunRequest)
session = GatewaySession(Target(url, token), asked.session)
session.connect(60)
feed = session.submit(asked)
while feed.view is None or feed.view.state != "running":
    assert feed.next_item(90) is not None
print("running", flush=True)
exec(sys.argv[3])
import time
time.sleep(600)
"""


def start_kernel(gateway: GatewayBed, asked: RunRequest, and_then: str = "") -> subprocess.Popen[bytes]:
    """A process with a session that has submitted ``asked``; returns once that runs."""
    command = [sys.executable, "-c", _KERNEL, gateway.url, gateway.config.token_file, and_then]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(encode(asked))
    process.stdin.close()
    assert process.stdout.readline() == b"running\n"
    return process
