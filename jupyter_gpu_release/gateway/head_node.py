"""``python -m jupyter_gpu_release.gateway.head_node SPEC``: start Ray on this machine, then deploy the gateway on it.

One process does both, since importing Ray takes it half a second. It does what ``ray start --head`` does, without what
nobody asks for here. It prints a :class:`.StartedRay` when Ray runs, reads the path of the gateway's configuration
from standard input, and prints a :class:`.Deployed`. Ray's processes outlive it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import ray
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._private.ray_constants import PROCESS_TYPE_RAYLET

from ..host.process_control import machine_bytes
from ..protocol.config import RayHead, StartedRay
from .deploy import deploy
from .ray_driver import answer_with, take_stdout

_raylet: Any = ray._raylet  # its types do not name all of it
_REGISTERED_S, _LOOK_S = 30.0, 0.01
#: of Ray's agents: they are there for Ray jobs of users, which nobody has sent yet
_AGENTS_NICENESS = 10
_NOT_IN_USE = -1
_PORTS_NOT_IN_USE = (
    _raylet.METRICS_AGENT_PORT_NAME,
    _raylet.METRICS_EXPORT_PORT_NAME,
    _raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
)
#: what Ray's dashboard needs; without all of them its agents do less
_DASHBOARD_NEEDS = ("aiohttp", "aiohttp_cors", "grpc", "opencensus", "opentelemetry", "prometheus_client", "pydantic")


class QuickNode(Node):
    """A node of Ray's that waits for nothing but GCS and raylet."""

    def start_api_server(self, **_: Any) -> None:
        """Start no process for the dashboard: it would do nothing, and is waited for (0.9 s)."""

    def start_ray_processes(self) -> None:
        """Start the raylet, and return once it is known. Ray itself would look again a second later."""
        self._tell_ports()
        super().start_ray_processes()
        raylet = self.all_processes[PROCESS_TYPE_RAYLET][0].process
        self._wait_until_registered(raylet)
        for agent in psutil.Process(raylet.pid).children():
            own = os.getpriority(os.PRIO_PROCESS, agent.pid)  # no user may lower it: `nice -n 15 jupyter gpu start`
            os.setpriority(os.PRIO_PROCESS, agent.pid, max(own, _AGENTS_NICENESS))

    def _tell_ports(self) -> None:
        """Say what Ray's agents will say of themselves: the raylet waits for their words, and they import for 1.5 s."""
        ports = dict.fromkeys(_PORTS_NOT_IN_USE, _NOT_IN_USE)
        ports[_raylet.RUNTIME_ENV_AGENT_PORT_NAME] = self._ray_params.runtime_env_agent_port
        for name, port in ports.items():
            _raylet.persist_port(self._session_dir, self._node_id, name, port)

    def _wait_until_registered(self, raylet: Any) -> None:
        deadline = time.monotonic() + _REGISTERED_S
        while not self._is_registered():
            if raylet.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the raylet ended, or did not register; its log says why")
            time.sleep(_LOOK_S)

    def _is_registered(self) -> bool:
        nodes = self.get_gcs_client().get_all_node_info(timeout=_REGISTERED_S).values()
        return any(node.node_id.hex() == self._node_id for node in nodes)


def start_ray(spec: RayHead) -> str:
    """Start GCS and raylet; returns the GCS's address."""
    node = QuickNode(
        RayParams(
            node_ip_address=spec.address,
            node_name=spec.address,
            temp_dir=spec.folder,
            gcs_server_port=spec.gcs_port,
            num_cpus=spec.cpus,
            num_gpus=spec.gpus,
            object_store_memory=spec.object_store_bytes,
            memory=machine_bytes() - spec.object_store_bytes,
            include_dashboard=False,
            include_log_monitor=False,
            no_monitor=True,
            dashboard_port=0,
            dashboard_agent_listen_port=0,
            runtime_env_agent_port=spec.runtime_env_port,
        ),
        head=True,
        shutdown_at_exit=False,
        spawn_reaper=False,
    )
    return str(node.address)


def answer_for_dashboard() -> None:
    """Spare Ray the imports by which it sees whether its dashboard is installed (0.2 s), where it is not."""
    if not all(map(importlib.util.find_spec, _DASHBOARD_NEEDS)):
        sys.modules["ray.dashboard.optional_deps"] = None  # type: ignore[assignment]  # to import it is an ImportError


def main() -> int:
    """Process entry point."""
    answer_for_dashboard()
    with take_stdout() as answers:
        address = start_ray(msgspec.json.decode(sys.argv[1], type=RayHead))
        answers.write(msgspec.json.encode(StartedRay(address)) + b"\n")
        return answer_with(deploy, Path(sys.stdin.readline().strip()), answers)


if __name__ == "__main__":
    sys.exit(main())
