"""Start of Ray's head node for the embedded cluster: command line, environment, what is left out and why."""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL, Popen

import msgspec

from ..host.environment import for_cells, for_cluster, installer_variables
from ..host.process_control import CLUSTER_MARKER, NODE_MARKER
from ..protocol.config import GatewayConfig, RayHead, SlurmPool, StoreMode
from ..protocol.node import ForkServerConfig, early_server_path
from .launch_spec import LOOPBACK, LaunchSpec

#: We move no data through Ray's object store; this is near the least that it accepts.
OBJECT_STORE_BYTES = 100 << 20

#: Ray replaces a loopback address by another one of the machine and then listens on all of them; with this (meant for
#: machines with a firewall's pop-ups) it keeps 127.0.0.1, and GCS and raylet listen there only.
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

#: Modules named like some that jsonschema asks for and does without. In an environment with JupyterLab, jsonschema
#: imports them in every process that imports ray: the checker of IRIs compiles grammars for 2 s each time (measured, a
#: cluster's start takes 8.7 s with it and 3.4 s without), the others take 0.05 s. These say "not installed".
_LEFT_OUT = ("rfc3986_validator", "rfc3987_syntax")
_ABSENT = 'raise ImportError("left out by jupyter_gpu_release to start Ray sooner")\n'

#: The last of them also takes the folder off the path in Ray's workers, so that cells and what they start never see it.
_LAST_LEFT_OUT = "isoduration"
_LEAVE_PATH = '''"""Keeps `import ray` from compiling grammars that nothing asks for."""
import os, sys
folder = os.path.dirname(__file__)
if os.path.basename(sys.argv[0]) == "default_worker.py":
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != folder]
    os.environ.pop("PYTHONPATH", None)
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
'''


def head_command(plan: LaunchSpec, runtime_env_port: int) -> list[str]:
    """Command of the process that starts Ray and deploys the gateway; the daemon inherits what it has started."""
    spec = RayHead(
        folder=plan.ray_folder,
        address=plan.address,
        gcs_port=int(plan.ray_address.rpartition(":")[2] or 0),
        gpus=plan.gpus,
        cpus=plan.cpus,
        object_store_bytes=OBJECT_STORE_BYTES,
        runtime_env_port=runtime_env_port,
    )
    return [sys.executable, "-m", "jupyter_gpu_release.gateway.head_node", msgspec.json.encode(spec).decode()]


def reserve_port(address: str) -> socket.socket:
    """Reserve a port that nobody else gets while the socket is open; one who is told of it can listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Ray's agent does: both may have it then
    reserved.bind((address, 0))
    return reserved


def ray_environment(plan: LaunchSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of everything in the cluster: what is named for it, and what Ray is to do."""
    kept = for_cluster(environment)
    if plan.simulated:
        kept.pop("CUDA_VISIBLE_DEVICES", None)
    search = [str(plan.stand_in_folder), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {
        CLUSTER_MARKER: plan.cluster,
        "JUPYTER_GPU_HOME": plan.home,
        "PYTHONPATH": os.pathsep.join(search),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": plan.ray_token_file,
        **(LOOPBACK_ONLY if plan.address == LOOPBACK else {}),
        # removed leases are seen free after 2 ms, not 100 (measured: 0.35 % of a core more than 10 ms, 4 ms sooner)
        "RAY_raylet_report_resources_period_milliseconds": "2",
        # the deploying driver has ended, and Ray would end the idle worker that leases GPUs with it: 1 s a lease
        "RAY_kill_idle_workers_interval_ms": "0",
        # Ray makes its workers nice (15) by default; cells are the main thing here
        "RAY_worker_niceness": "0",
        # a further node that died is known after five looks that nobody answers: in 5 s instead of 15
        "RAY_health_check_period_ms": "1000",
        # memory of cells is limited by their supervisors; Ray's own monitor would kill the gateway instead
        "RAY_memory_monitor_refresh_ms": "0",
        "RAY_task_events_report_interval_ms": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        **(_keeps_head(plan, plan.slurm) if plan.slurm is not None else {}),
    }


def _keeps_head(plan: LaunchSpec, pool: SlurmPool) -> dict[str, str]:
    """Have Ray keep the head's tables on disk, and nodes wait for the next head."""
    return {
        "RAY_gcs_storage": "rocksdb",
        "RAY_gcs_storage_path": str(plan.head_memory),
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(math.ceil(pool.head_grace_s)),
    }


def head_environment(plan: LaunchSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the process that starts Ray: also the id of its node, which is known before."""
    return {**environment, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": plan.node}


def begin_fork_server(plan: LaunchSpec, environment: Mapping[str, str], config: GatewayConfig) -> Popen[bytes]:
    """Start the first fork server beside Ray: its imports take as long as Ray's start. The agent takes it over.

    ``environment``: that of Ray's processes. The agent takes no other than one as it would start itself.
    """
    markers = {CLUSTER_MARKER: plan.cluster, NODE_MARKER: plan.node}
    markers |= installer_variables(config.environment_index, config.environment_wheels)
    own = for_cells(environment, markers, config.hash_seed)
    search = [entry for entry in own.pop("PYTHONPATH", "").split(os.pathsep) if entry != str(plan.stand_in_folder)]
    if any(search):
        own["PYTHONPATH"] = os.pathsep.join(search)
    path = early_server_path(plan.runtime, plan.node)
    as_owners = config.store_mode == StoreMode.OWNER
    told = msgspec.json.encode(ForkServerConfig(os.getpid(), config.preload, early=path, as_owners=as_owners)).decode()
    command = [sys.executable, "-m", "jupyter_gpu_release.node.fork_server", told]
    with open(f"{path}.log", "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as log:
        return Popen(command, stdin=DEVNULL, stdout=log, stderr=log, env=own, cwd="/", start_new_session=True)


def read_import(plan: LaunchSpec) -> str:
    """The package that the first fork server is importing just now; empty when it is done, or has not begun."""
    try:
        news = msgspec.json.decode(Path(f"{early_server_path(plan.runtime, plan.node)}.news").read_bytes(), type=dict)
    except (OSError, msgspec.MsgspecError):  # not there yet, or half written
        return ""
    return str(news.get("importing", "")).partition(".")[0]


def write_stand_in(plan: LaunchSpec) -> None:
    """Put the stand-in modules where :func:`ray_environment` points ``PYTHONPATH``."""
    plan.stand_in_folder.mkdir(mode=0o700, exist_ok=True)  # of an earlier head, or another node on this host
    for name in _LEFT_OUT:
        (plan.stand_in_folder / f"{name}.py").write_text(_ABSENT, encoding="utf-8")
    (plan.stand_in_folder / f"{_LAST_LEFT_OUT}.py").write_text(_LEAVE_PATH + _ABSENT, encoding="utf-8")
