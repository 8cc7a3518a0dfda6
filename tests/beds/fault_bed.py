"""Finding and killing the parts of a cluster, and the check that nothing is held afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from jupyter_gpu_release.cli.processes import cluster_processes
from jupyter_gpu_release.cli.ray_head import LOOPBACK_ONLY
from jupyter_gpu_release.client.autostart import Ready

_GROUPS = """
import json, ray, sys
ray.init(address=sys.argv[1], namespace="jupyter_gpu_release", log_to_driver=False, logging_level="ERROR")
table = ray.util.placement_group_table()
print(json.dumps([group["name"] for group in table.values() if group["state"] != "REMOVED"]))
"""


class Cluster:
    """The parts of an embedded cluster as processes."""

    def __init__(self, ready: Ready) -> None:
        self.connection = ready.connection
        self.home = Path(ready.connection.token_file).parent

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
            victim.kill()
        psutil.wait_procs(victims, timeout=10)

    def kill_all(self) -> None:
        """SIGKILL everything at once, the keeper first."""
        pids = [self.connection.keeper_pid, *cluster_processes(self.connection.cluster)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def cli(self, *arguments: str) -> str:
        """Run the command line against this cluster."""
        environment = {**os.environ, "JUPYTER_GPU_HOME": str(self.home)}
        command = [sys.executable, "-m", "jupyter_gpu_release.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """``jupyter gpu status --json``."""
        document: dict[str, Any] = json.loads(self.cli("status", "--json"))
        return document

    def last_run(self) -> dict[str, Any]:
        """The newest run."""
        document: dict[str, Any] = json.loads(self.cli("runs", "--json"))["runs"][0]
        return document

    def placement_groups(self) -> list[str]:
        """Names of the placement groups that exist in Ray."""
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.home / "ray-token"),
            **LOOPBACK_ONLY,
        }
        command = [sys.executable, "-c", _GROUPS, self.connection.ray_address]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
        names: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
        return names

    def assert_nothing_is_held(self, *pids: int) -> None:
        """No GPU, no placement group, none of these processes (waits a little: the broker reconciles every few s)."""
        deadline = time.monotonic() + 15
        while (self.status()["gpus"]["held"] or any(map(_lives, pids))) and time.monotonic() < deadline:
            time.sleep(0.2)
        status = self.status()
        assert status["gpus"]["held"] == 0, status
        assert [pid for pid in pids if _lives(pid)] == []
        assert self.placement_groups() == []
        assert _run_processes(self.connection.cluster) == []


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
