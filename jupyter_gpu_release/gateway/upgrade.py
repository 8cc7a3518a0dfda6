"""``python -m jupyter_gpu_release.gateway.upgrade CONFIG.json``: have this version's gateway take over from another's.

The gateway's process is killed, and Ray begins it anew, with the code that is installed now. It goes on from the
ledger as after any restart: runs are on their nodes, agents and kernels find it as before. Prints the same JSON line as
``gateway.deploy``.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec
import ray

from ..errors import ClusterError
from ..protocol.config import Deployed, GatewayConfig
from .ray_driver import join_cluster, run_as_command
from .readiness import check_nodes, wait_until_ready

_BEGIN_S, _ANSWER_S, _AGAIN_S = 90.0, 10.0, 0.05


def upgrade(config: GatewayConfig) -> Deployed:
    """Restart the gateway with this version's code, and wait until it takes runs.

    Raises
    ------
    ClusterError
        No gateway is there, a node has another version of this package than the one here (the gateway goes on as it is
        then), or the new one does not start.
    """
    join_cluster(config)
    try:
        gateway = ray.get_actor(config.gateway_actor, namespace=config.ray_namespace)
    except ValueError:
        raise ClusterError("there is no gateway on the cluster", hint="run `jupyter gpu start`") from None
    check_nodes(config)
    before = _pid_of(gateway)
    ray.kill(gateway, no_restart=False)
    deadline = time.monotonic() + _BEGIN_S
    while _pid_of(gateway) in (0, before):
        if time.monotonic() > deadline:
            raise ClusterError(f"the new gateway did not begin within {_BEGIN_S:g} s", hint="see log/gateway.log")
        time.sleep(_AGAIN_S)
    return wait_until_ready(config, gateway, created=False)


def _pid_of(gateway: Any) -> int:
    """The gateway's process; 0 while none answers."""
    try:
        return msgspec.json.decode(ray.get(gateway.describe.remote(), timeout=_ANSWER_S), type=Deployed).pid
    except ray.exceptions.RayError:
        return 0


if __name__ == "__main__":
    sys.exit(run_as_command(upgrade, __spec__.name if __spec__ else "upgrade"))
