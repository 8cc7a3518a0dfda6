"""``python -m jupyter_gpu_release.gateway.undeploy CONFIG.json``: take everything of ours off a Ray cluster again.

The counterpart of ``gateway.deploy`` for a cluster that somebody else runs. Prints the same JSON line.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..protocol.config import Deployed, GatewayConfig
from .cluster.placement_groups import groups_aside, living_groups
from .ray_driver import join_cluster, run_as_command

_NODE_S = 30.0


def undeploy(config: GatewayConfig) -> Deployed:
    """End the gateway, the leases, the agents (with their cells) and the nodes' runtime folders; twice is fine.

    Raises
    ------
    ClusterError
        The cluster cannot be reached.
    """
    join_cluster(config)
    try:
        _kill(config.gateway_actor, config)  # first: it would make the others again
        for group in [*living_groups().values(), *groups_aside().values()]:
            ray.util.remove_placement_group(group)
        for entry in ray.util.list_named_actors(all_namespaces=True):
            if entry["namespace"] == config.ray_namespace and entry["name"].startswith("agent-"):
                _kill(entry["name"], config)
        _remove_folders(config.runtime)
    finally:
        ray.shutdown()
    return Deployed(True)


def _kill(name: str, config: GatewayConfig) -> None:
    with suppress(ValueError):  # not there
        ray.kill(ray.get_actor(name, namespace=config.ray_namespace), no_restart=True)


def _remove_folders(runtime: str) -> None:
    if not Path(runtime).name.startswith("jgr-"):
        return
    remove = ray.remote(num_cpus=0, max_retries=0)(_remove_by_value())
    waiting = [
        remove.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(runtime)
        for node in ray.nodes()
        if node["Alive"]
    ]
    # a node that does not answer keeps an empty folder: no reason to fail
    ray.wait(waiting, num_returns=len(waiting), timeout=_NODE_S)


def _remove_by_value() -> Any:
    def remove(folder: str) -> None:
        import shutil
        import time
        from pathlib import Path

        for _ in range(100):  # the agent that was just killed, and what is below it, may still make files
            shutil.rmtree(folder, ignore_errors=True)
            if not Path(folder).exists():
                break
            time.sleep(0.05)

    remove.__module__ = "__main__"  # sent as code: the node need not have this package any more
    return remove


if __name__ == "__main__":
    sys.exit(run_as_command(undeploy, __spec__.name if __spec__ else "undeploy"))
