"""Finding and killing the parts of a cluster, and the check that nothing is held afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from inspector import Inspector

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.local_cluster.processes import cluster_processes
from jupyter_gpu_release.local_cluster.ray_head import LOOPBACK_ONLY
from jupyter_gpu_release.protocol.rest import RunRow


class Cluster:
    """The parts of an embedded cluster as processes."""

    def __init__(self, ready: Ready) -> None:
        self.connection = ready.connection
        self.home = Path(ready.connection.token_file).parent
        self._inspector: Inspector | None = None

    def find(self, words: str) -> list[psutil.Process]:
        """Processes of this cluster whose command line contains ``words``."""
        found = []
        for pid in cluster_processes(self.connection.cluster):
            try:
                process = psutil.Process(pid)
                if words in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill(self, words: str) -> None:
        """SIGKILL them."""
        victims = self.find(words)
        assert victims, f"no process with {words!r} in {[p.cmdline() for p in self.find('')]}"
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):  # with one of them, or by itself
                victim.kill()
        wait_dead(victims)

    def kill_all(self) -> None:
        """SIGKILL everything at once, the daemon first."""
        pids = [self.connection.daemon_pid, *cluster_processes(self.connection.cluster)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def cli(self, *arguments: str) -> str:
        """Run the command line against this cluster."""
        environment = {**os.environ, "JUPYTER_GPU_HOME": str(self.home)}
        command = [sys.executable, "-m", "jupyter_gpu_release.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """What ``jupyter gpu status --json`` prints."""
        return self._document("/v1/status")

    def last_run(self) -> dict[str, Any]:
        """The newest run, as ``jupyter gpu runs --json`` prints it."""
        document: dict[str, Any] = self._document("/v1/runs")["runs"][0]
        return document

    def _document(self, path: str) -> dict[str, Any]:
        with self._gateway() as gateway:
            return gateway.document(path)

    def trials(self, sweep: str) -> list[RunRow]:
        """The runs of a detached sweep's trials."""
        with self._gateway() as gateway:
            return [row for row in gateway.trials(sweep).runs if row.run != sweep]

    def _gateway(self) -> GatewayClient:
        token = read_secret(Path(self.connection.token_file))
        return GatewayClient(self.connection.url, token, timeout_s=60)

    def placement_groups(self) -> list[str]:
        """Names of the placement groups that exist in Ray."""
        if self._inspector is None:
            environment = {**os.environ, **self.ray_environment}
            self._inspector = Inspector(self.connection.ray_address, environment, self.home / "inspector.log")
        names: list[str] = self._inspector.ask("groups")
        return names

    @property
    def ray_environment(self) -> dict[str, str]:
        """What a Ray driver needs to join."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.home / "ray-token"), **LOOPBACK_ONLY}

    def close(self) -> None:
        """Let go of the cluster."""
        if self._inspector is not None:
            self._inspector.close()

    def assert_nothing_is_held(self, *pids: int) -> None:
        """No GPU, no placement group, no process of a cell (waits: the broker reconciles every few s)."""
        deadline = time.monotonic() + 120
        while (left := self._held(pids)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == []

    def _held(self, pids: tuple[int, ...]) -> list[str]:
        status = self.status()
        held = [f"GPUs: {status}"] if status["gpus"]["held"] else []
        held += [f"process {pid}" for pid in {*filter(_lives, pids), *_run_processes(self.connection.cluster)}]
        return held + [f"group {name}" for name in self.placement_groups()]


def wait_dead(victims: list[psutil.Process]) -> None:
    """Until none of them lives; who collects them is not looked at."""
    deadline = time.monotonic() + 60
    while left := [victim for victim in victims if _lives(victim.pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _run_processes(cluster: str) -> list[int]:
    """Processes that a cell started (exec'ed within a run)."""
    found = []
    for pid in cluster_processes(cluster):
        try:
            if psutil.Process(pid).environ().get("JUPYTER_GPU_RUN"):
                found.append(pid)
        except psutil.Error:
            continue
    return found
