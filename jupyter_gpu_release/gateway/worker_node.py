"""``python -m jupyter_gpu_release.gateway.worker_node RAY_WORKER``: start a further node of a cluster on this machine.

It does what ``ray start --address`` does, and ends; Ray's processes outlive it.
"""

from __future__ import annotations

import sys

import msgspec
from ray._private.parameter import RayParams

from ..host.process_control import machine_bytes
from ..protocol.config import RayWorker
from .head_node import QuickNode, answer_for_dashboard


def start_worker(spec: RayWorker) -> None:
    """Start the raylet, and return once the cluster knows the node."""
    QuickNode(
        RayParams(
            gcs_address=spec.gcs_address,
            node_ip_address=spec.address,
            node_name=spec.address,
            temp_dir=spec.folder,
            num_cpus=spec.cpus,
            num_gpus=spec.gpus,
            object_store_memory=spec.object_store_bytes,
            memory=machine_bytes() - spec.object_store_bytes,  # Ray itself looks at no limit of a job's
            labels=spec.labels,
            include_log_monitor=False,
            dashboard_agent_listen_port=0,
            runtime_env_agent_port=spec.runtime_env_port,
        ),
        head=False,
        shutdown_at_exit=False,
        spawn_reaper=False,
    )


def main() -> int:
    """Process entry point."""
    answer_for_dashboard()
    start_worker(msgspec.json.decode(sys.argv[1], type=RayWorker))
    return 0


if __name__ == "__main__":
    sys.exit(main())
