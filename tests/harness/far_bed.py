"""A cluster over several hosts: notebooks, head and two nodes, each with an address and a name of its own."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from doc_blocks import block
from far_clock import jump_clock
from network_hosts import Network, NetworkHost
from ray_imports import leave_out

from jupyter_gpu_release.client.home import HomePaths, write_secret
from jupyter_gpu_release.local_cluster.launch_spec import runtime_root

_CLI = [sys.executable, "-m", "jupyter_gpu_release.cli"]
_RAY = [sys.executable, "-m", "ray.scripts.scripts"]
GPUS_EACH = 2


def kept_head(folder: Path) -> dict[str, str]:
    """The variables by which Ray keeps the head's memory, in this folder."""
    kept = block("operate/head-lost.md", "## Keep the head's memory")
    words = [word for line in kept.commands({"/var/lib/ray-gcs": str(folder)}) for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words if word != "export")


class FarBed:
    """Hosts ``laptop``, ``head``, ``node-a``, and ``node-b``, whose clock is an hour ahead. All see the store."""

    def __init__(
        self, network: Network, folder: Path, libraries: Path | None = None, *, keeps_head: bool = False
    ) -> None:
        """``libraries``: folder with the package that the cluster has; None: ours.

        ``keeps_head``: as the operators' page says.
        """
        self.network, self.folder, self._libraries = network, folder, libraries
        self.home, self.store = HomePaths(folder / "home"), folder / "store"
        self._ray = Path(tempfile.mkdtemp(prefix="jgr-", dir=runtime_root()))
        paths = [*([libraries] if libraries is not None else []), leave_out(self._ray)]
        write_secret(self._ray / "ray-token", secrets.token_hex(32))
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._ray / "ray-token"),
            "RAY_raylet_report_resources_period_milliseconds": "2",
            "RAY_memory_monitor_refresh_ms": "0",
            "JUPYTER_GPU_HOME": str(self.home.root),
            "JUPYTER_GPU_PRELOAD": "json",
            "JUPYTER_GPU_NODE_GRACE": "8s",
            "JUPYTER_GPU_ALLOWED_HOSTS": network["laptop"].address,
            "PYTHONPATH": ":".join(map(str, paths)),
        }
        if keeps_head:
            self._environment |= kept_head(folder / "gcs")
        head = network["head"]
        self.gcs, self.port = f"{head.address}:6379", 8765
        self.url = f"http://{head.address}:{self.port}"
        #: of processes whose clock is an hour ahead
        self.hour_ahead = jump_clock(folder, 3600)

    def start(self) -> None:
        """Ray on each host as its operator would start it, and the gateway on the head, from the head."""
        self.carry_out("head", "ray start --head --port=6379 …")
        for node in ("node-a", "node-b"):
            self.carry_out(node, "ray start --address=HEAD:6379 …")
        self.carry_out("head", "jupyter gpu start --address HEAD:6379 …")

    def carry_out(self, name: str, line: str) -> str:
        """Run a line of the operators' pages on a host and return what it says; ``…``: the options of this bed."""
        host, head = self.network[name], self.network["head"]
        words = shlex.split(line.replace("HEAD", head.address), comments=True)
        if words[0] == "ray":
            command, options = [*_RAY, words[1]], self._ray_options(host)
            assert words[1] == "start" or host.own_processes, "it would end everybody's Ray"
        else:
            command, words = [*_CLI, words[2]], words[1:]
            options = [
                "--host",
                head.address,
                "--port",
                str(self.port),
                "--allow-plain-text",
                "--store",
                str(self.store),
            ]
        given = [option for word in words[2:] for option in (options if word == "…" else [word])]
        done = self._on(host, [*command, *given], **(self.hour_ahead if name == "node-b" else {}))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _ray_options(self, host: NetworkHost) -> list[str]:
        common = ["--num-cpus=2", "--object-store-memory=100000000", "--include-log-monitor=false"]
        common += [f"--node-ip-address={host.address}", "--disable-usage-stats"]
        if host.name != "head":
            return [*common, f"--num-gpus={GPUS_EACH}"]
        kind = [f"--temp-dir={self._ray}/ray", "--num-gpus=0", "--include-dashboard=false", "--dashboard-port=0"]
        return [*common, *kind, "--no-monitor"]

    def _on(self, host: NetworkHost, words: list[str], **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            host.command(words),
            cwd=self._libraries,
            env=self._environment | settings,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def kernel_environment(self, url: str = "", **more: str) -> Mapping[str, str]:
        """What a user on another host sets."""
        return {
            "JUPYTER_GPU_URL": url or self.url,
            "JUPYTER_GPU_TOKEN_FILE": str(self.home.token),
            "JUPYTER_GPU_HOME": str(self.folder / "no-cluster-here"),
            "JUPYTER_GPU_STORE": str(self.store),
            **more,
        }

    def doctor(self) -> list[dict[str, str]]:
        """Findings of ``jupyter gpu doctor``, asked on the head."""
        done = self._on(self.network["head"], [*_CLI, "doctor", "--json"])
        return list(json.loads(done.stdout)["findings"])

    def stop(self) -> None:
        """End all that runs on the hosts, as power cuts, and remove what they left."""
        for host in self.network.hosts:
            host.kill_all()
        connection = self.home.read_connection()
        for folder in (self._ray, *([Path(connection.runtime)] if connection is not None else [])):
            shutil.rmtree(folder, ignore_errors=True)
