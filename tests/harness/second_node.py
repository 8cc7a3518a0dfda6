"""A second node for an embedded cluster on the same machine: a further raylet, so a further node agent."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from fault_bed import wait_dead

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.local_cluster.processes import cluster_processes

#: Ray's command line refuses a second node on the loopback (and takes another address); its parts do not
_RAY = """
import sys
from ray._private import ray_constants, services
from ray.scripts import scripts
ray_constants.ENABLE_RAY_CLUSTER = True
services.resolve_ip_for_localhost = lambda host: host
sys.argv[0] = "ray"
scripts.main()
"""

#: Ray's workers would have process groups of their own, and when the raylet dies the system wakes the stopped ones of
#: such a group and ends them (SIGCONT and SIGHUP to orphaned groups): nobody would be silent
_ONE_GROUP = {"RAY_process_group_cleanup_enabled": "0"}


class SecondNode:
    """``ray start --address`` with the environment of the cluster's own head, and with ``environment`` besides."""

    def __init__(self, ready: Ready, gpus: int, environment: Mapping[str, str] | None = None) -> None:
        self.connection = ready.connection
        self._more = environment or {}
        self.raylet = self._start(gpus)

    def start_anew(self, gpus: int) -> None:
        """Another node in the place of one that was killed."""
        self.raylet = self._start(gpus)

    def _start(self, gpus: int) -> int:
        before = set(self._raylets())
        head = next(pid for pid in cluster_processes(self.connection.cluster) if "gcs_server" in _command(pid))
        command = [
            sys.executable,
            "-c",
            _RAY,
            "start",
            f"--address={self.connection.ray_address}",
            "--node-ip-address=127.0.0.1",
            f"--num-gpus={gpus}",
            "--num-cpus=2",
            "--object-store-memory=104857600",
            "--include-log-monitor=false",
            "--disable-usage-stats",
        ]
        done = subprocess.run(
            command, env={**_environment(head), **_ONE_GROUP, **self._more}, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (raylet,) = set(self._raylets()) - before
        return raylet

    def _raylets(self) -> list[int]:
        """Without their children, which bear their names until they have begun their own program."""
        found = [pid for pid in cluster_processes(self.connection.cluster) if "raylet/raylet" in _command(pid)]
        return [pid for pid in found if _parent(pid) not in found]

    def wait_until_up(self, gpus: int) -> None:
        """Until the gateway sees this many GPUs, all on nodes whose agents take runs."""
        deadline = time.monotonic() + 240
        with self._gateway() as client:
            while (health := client.health()).gpus_total < gpus or health.agents < health.nodes:
                assert time.monotonic() < deadline, health
                time.sleep(0.1)

    def _gateway(self) -> GatewayClient:
        return GatewayClient(self.connection.url, read_secret(Path(self.connection.token_file)), timeout_s=60)

    def kill(self) -> None:
        """SIGKILL the raylet and everything below it, as a node that loses its power."""
        if not psutil.pid_exists(self.raylet):
            return
        raylet = psutil.Process(self.raylet)
        victims = [raylet, *raylet.children(recursive=True)]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):  # the raylet's death ended it first
                victim.kill()
        wait_dead(victims)

    @contextlib.contextmanager
    def hiccup(self) -> Iterator[None]:
        """Nobody on the node says a word, and no connection ends; afterwards all go on."""
        raylet = psutil.Process(self.raylet)
        stopped: list[psutil.Process] = []
        try:
            while new := [process for process in _family(raylet) if process not in stopped]:
                for process in new:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.suspend()
                        stopped.append(process)
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

    def fall_silent(self) -> list[psutil.Process]:
        """As a node whose cable is pulled: the raylet is gone and nobody else says a word, but no connection ends.

        Returns the processes that are stopped; whoever calls this must kill them.
        """
        raylet = psutil.Process(self.raylet)
        stopped: set[psutil.Process] = set()
        while new := set(raylet.children(recursive=True)) - stopped:
            for process in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
                    stopped.add(process)
        raylet.kill()
        raylet.wait(60)
        return list(stopped)


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return 0


def _environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    found = dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)
    found.pop("RAY_OVERRIDE_NODE_ID_FOR_TESTING", None)  # of the head alone: two nodes with one id are one for Ray
    return found
