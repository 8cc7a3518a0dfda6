"""``python -m jupyter_gpu_release.local_cluster.slurm_worker HOME CLUSTER``: the process of one pool job, on its node.

It starts a further node of Ray's with the GPUs that Slurm gave the job, and ends all that it has started when the job
is to end or the head is gone. The gateway makes the node's agent.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
import psutil

from ..client.home import HomePaths
from ..errors import ClusterError, GpuReleaseError
from ..host.gpus import Nvml
from ..host.process_control import become_subreaper
from ..host.slurm import JOB_LABEL, Slurm
from ..protocol.config import ClusterSettings, GatewayConfig, RayWorker, shared_by
from .launch_spec import LaunchSpec
from .processes import PLAN_FILE, cluster_processes, descendants, end_processes, remove_folder
from .ray_head import OBJECT_STORE_BYTES, begin_fork_server, ray_environment, reserve_port, write_stand_in

_REACH_S = 20.0


class _Ended(BaseException):
    """Slurm ends the job."""


class SlurmWorker:
    """One node, for as long as its job."""

    def __init__(self, config: GatewayConfig, job: str) -> None:
        self._config = config
        self._job = job
        pool = config.slurm
        if pool is None:
            raise ClusterError("this cluster has no pool of Slurm's any more", hint="end the job: scancel")
        self._gpus = given_gpus(job) or ([str(n) for n in range(pool.gpus_per_node)] if config.simulated else [])
        if pool.gpus_per_node and not self._gpus:
            raise ClusterError("Slurm gave this job no GPU", hint="set gres: as in a job script that gets GPUs")
        self._plan = LaunchSpec(
            home=config.home,
            runtime=config.runtime,
            address=address_towards(config.ray_address),
            store=config.store,
            gpus=len(self._gpus),
            cpus=pool.cpus_per_node,
            node=secrets.token_hex(28),
            **shared_by(ClusterSettings, config),
        )

    def run(self) -> str:
        """Start the node and stay until it is gone; returns why it is."""
        address = self._plan.address
        make_own_folder(Path(self._plan.runtime))
        write_stand_in(self._plan)
        environment = ray_environment(self._plan, os.environ)
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(self._gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        begin_fork_server(self._plan, environment, self._config)
        with reserve_port(address) as reserved:
            command = self._command(address, reserved.getsockname()[1])
            own = {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": self._plan.node}
            status = subprocess.run(command, env=environment | visible | own, check=False).returncode
            if status:
                return f"Ray did not start on this node (exit status {status})"
            print(f"node {self._plan.node[:8]} is up with GPUs {', '.join(self._gpus) or 'none'}", flush=True)
            return self._watch()

    def end(self) -> None:
        """End all that was started here, and remove the folder unless others of the cluster use it."""
        end_processes(descendants(psutil.Process()))
        folder = Path(self._plan.runtime)
        if not (folder / PLAN_FILE).exists() and not cluster_processes(self._plan.cluster, runtime=self._plan.runtime):
            remove_folder(folder)

    def _command(self, address: str, port: int) -> list[str]:
        spec = RayWorker(
            folder=self._plan.ray_folder,
            gcs_address=self._config.ray_address,
            address=address,
            gpus=len(self._gpus),
            cpus=self._plan.cpus,
            object_store_bytes=OBJECT_STORE_BYTES,
            runtime_env_port=port,
            labels={JOB_LABEL: self._job},
        )
        return [sys.executable, "-m", "jupyter_gpu_release.gateway.worker_node", msgspec.json.encode(spec).decode()]

    def _watch(self) -> str:
        """Reap children until Ray's raylet is gone."""
        raylets = {child.pid for child in psutil.Process().children() if child.name() == "raylet"}
        while raylets:
            raylets.discard(os.waitpid(-1, 0)[0])
        return "the head is gone, or Ray has ended on this node"


def make_own_folder(folder: Path) -> None:
    """Make a folder that is this user's alone, or take such a one: Python runs what is in it.

    Raises :class:`ClusterError`: somebody else may have made it first, its name is no secret.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=False)
    except FileExistsError:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise ClusterError(
                f"{folder} on {socket.gethostname()} is not this user's alone",
                hint="have it removed, or set JUPYTER_GPU_RUNTIME to a folder that only this user can write",
            ) from None
    except OSError as error:
        raise ClusterError(
            f"cannot make {folder} on {socket.gethostname()}: {error.strerror}",
            hint="set JUPYTER_GPU_RUNTIME to a local folder that each node has",
        ) from error


def given_gpus(job: str) -> list[str]:
    """The job's GPUs: by their UUIDs where there is a driver, else as Slurm numbers them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES") or os.environ.get("SLURM_JOB_GPUS") or ""
    numbers = [entry for entry in named.split(",") if entry and entry != "NoDevFiles"] or Slurm().gpus_of(job)
    uuids = [gpu.uuid for gpu in Nvml(numbers).gpus()] if numbers else []
    return uuids if uuids and all(uuids) else numbers


def address_towards(gcs_address: str) -> str:
    """This node's address as the head sees it; raises :class:`ClusterError` when it cannot be reached."""
    host, _, port = gcs_address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_REACH_S) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        raise ClusterError(
            f"this node ({socket.gethostname()}) cannot reach the head at {gcs_address}: {error}",
            hint="set address: in the file of --slurm to an address of the login node that compute nodes reach",
        ) from error


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise _Ended


def read_config(home: Path, cluster: str) -> GatewayConfig:
    """Read the gateway's configuration; raises :class:`ClusterError`, also when the home is another cluster's now."""
    path = HomePaths(home).gateway_config
    try:
        config = msgspec.json.decode(path.read_bytes(), type=GatewayConfig)
    except (OSError, msgspec.MsgspecError) as error:
        raise ClusterError(
            f"this node ({socket.gethostname()}) cannot read {path}: {error}",
            hint="set JUPYTER_GPU_HOME to a folder that compute nodes see, and start the cluster anew",
        ) from error
    if config.cluster != cluster:
        raise ClusterError("the cluster that asked for this node is gone", hint="another one has its home now")
    return config


def main() -> int:
    """Process entry point."""
    become_subreaper()
    signal.signal(signal.SIGTERM, _end)
    worker, status = None, 0
    try:
        worker = SlurmWorker(read_config(Path(sys.argv[1]), sys.argv[2]), os.environ["SLURM_JOB_ID"])
        reason, status = worker.run(), 1
    except _Ended:
        reason = "Slurm ends the job"
    except GpuReleaseError as error:
        reason, status = f"{error.message} ({error.hint})", 1
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if worker is not None:
        worker.end()
    print(reason, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
