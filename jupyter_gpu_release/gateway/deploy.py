"""``python -m jupyter_gpu_release.gateway.deploy CONFIG.json``: create (or find) the gateway on a Ray cluster.

A short-lived Ray driver. Prints one JSON line (:class:`Deployed`), exit status 0 or 1.
"""

from __future__ import annotations

import sys
from typing import Any

import ray

from ..errors import ClusterError
from ..protocol.config import Deployed, GatewayConfig
from ..protocol.wire import encode
from .cluster.agents import runtime_env
from .ray_actor import GatewayActor
from .ray_driver import join_cluster, run_as_command
from .readiness import check_nodes, wait_until_ready

#: a resource that each head has: a gateway whose head is lost begins anew on the next one, where Ray remembers it
_HEAD = {"node:__internal_head__": 0.001}


def deploy(config: GatewayConfig) -> Deployed:
    """Create or find the gateway and wait until it answers over HTTP and a node agent is up.

    Raises
    ------
    ClusterError
        The cluster cannot be reached, has another Ray or Python version, lacks the package, or the gateway fails.
    """
    join_cluster(config)
    gateway, created = _find_or_create(config)
    return wait_until_ready(config, gateway, created=created)


def _find_or_create(config: GatewayConfig) -> tuple[Any, bool]:
    try:
        return ray.get_actor(config.gateway_actor, namespace=config.ray_namespace), False
    except ValueError:
        pass
    _check_head()
    if not config.embedded:
        check_nodes(config)
    options = {
        "name": config.gateway_actor,
        "namespace": config.ray_namespace,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": -1,
        "max_concurrency": 1000,
        "resources": _HEAD,
        **runtime_env(config),
    }
    return ray.remote(GatewayActor).options(**options).remote(encode(config)), True


def _check_head() -> None:
    """Raise :class:`ClusterError`: nobody would ever have a gateway that asks for a head."""
    if not any(entry["Alive"] and _HEAD.keys() <= entry["Resources"].keys() for entry in ray.nodes()):
        raise ClusterError("the Ray cluster has no head node that is alive")


if __name__ == "__main__":
    sys.exit(run_as_command(deploy, __spec__.name if __spec__ else "deploy"))
