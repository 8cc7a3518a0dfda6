"""Start of Ray's head node for the embedded cluster: command line, environment, what is left out and why."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from ..host.environment import for_cluster
from ..host.process_control import CLUSTER_MARKER
from .launch_spec import LaunchSpec

#: We move no data through Ray's object store; this is near the least that it accepts.
_OBJECT_STORE_BYTES = 100 << 20

#: Ray replaces a loopback address by another one of the machine and then listens on all of them; with this (meant for
#: machines with a firewall's pop-ups) it keeps 127.0.0.1, and GCS and raylet listen there only.
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

#: A module named like jsonschema's optional IRI checker. In an environment with JupyterLab, jsonschema imports
#: that one in every process that imports ray, and it compiles grammars for 2 s each time: measured, a cluster's
#: start takes 8.7 s with it and 3.4 s without. This one says "not installed", which jsonschema allows, and
#: takes itself off the path in Ray's workers, so that cells and what they start never see it.
_STAND_IN = '''"""Keeps `import ray` from compiling IRI grammars for two seconds."""
import os, sys
folder = os.path.dirname(__file__)
if os.path.basename(sys.argv[0]) == "default_worker.py":
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != folder]
    os.environ.pop("PYTHONPATH", None)
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
raise ImportError("left out by jupyter_gpu_release to start Ray sooner")
'''


def ray_command(plan: LaunchSpec) -> list[str]:
    """``ray start --head`` as one command (it returns when Ray runs; the daemon inherits its processes)."""
    return [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--port=0",
        "--node-ip-address=127.0.0.1",
        f"--temp-dir={plan.ray_folder}",
        f"--num-gpus={plan.gpus}",
        f"--num-cpus={plan.cpus}",
        f"--object-store-memory={_OBJECT_STORE_BYTES}",
        "--include-dashboard=false",
        "--dashboard-port=0",
        *_client_server_options(),
        "--include-log-monitor=false",
        "--no-monitor",  # the autoscaler's monitor: 100 MB and nothing to scale
        "--disable-usage-stats",
        "--log-style=record",
        "--log-color=false",
    ]


def _client_server_options() -> list[str]:
    """Options for Ray's client server. With gRPC installed, it starts on a fixed port that another cluster may have."""
    if importlib.util.find_spec("grpc") is None:
        return []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return [f"--ray-client-server-port={probe.getsockname()[1]}"]


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
        **LOOPBACK_ONLY,
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
    }


def write_stand_in(plan: LaunchSpec) -> None:
    """Put the stand-in module where :func:`ray_environment` points ``PYTHONPATH``."""
    plan.stand_in_folder.mkdir(mode=0o700)
    (plan.stand_in_folder / "rfc3987_syntax.py").write_text(_STAND_IN, encoding="utf-8")


def read_ray_address(plan: LaunchSpec) -> str:
    """``host:port`` of the GCS, from the file that ``ray start`` leaves in its temp folder."""
    return (Path(plan.ray_folder) / "ray_current_cluster").read_text(encoding="utf-8").strip()
