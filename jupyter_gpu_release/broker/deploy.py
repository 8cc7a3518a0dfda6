"""``python -m jupyter_gpu_release.broker.deploy CONFIG.json``: create (or find) the gateway on a Ray cluster.

A short-lived Ray driver. Prints one JSON line (:class:`Deployed`), exit status 0 or 1.
"""

from __future__ import annotations

import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .. import __version__
from ..client.home import read_secret
from ..core.messages import encode
from ..errors import AuthenticationError, ClusterError, GpuReleaseError
from .config import Deployed, GatewayConfig, read_config
from .nodes import runtime_env

_HEAD = "node:__internal_head__"
_ADDRESS_MEND = "is it running, and is this its GCS address (host:port)?"
_REACH_S = 5.0
_ANSWER_S = 90.0
_CREATE_S = 60.0


def deploy(config: GatewayConfig) -> Deployed:
    """Create or find the gateway and wait until it answers over HTTP and a node agent is up.

    Raises
    ------
    ClusterError
        The cluster cannot be reached, has another Ray or Python version, lacks the package, or the gateway fails.
    """
    _connect(config)
    try:
        if not config.embedded:
            _check_nodes(config)
        gateway, created = _find_or_create(config)
        answer = _wait_for(gateway)
        _wait_for_http(config, answer.url)
        answer = _wait_for(gateway)  # with the nodes that are up by now
        return msgspec.structs.replace(answer, created=created)
    finally:
        ray.shutdown()


def _connect(config: GatewayConfig) -> None:
    _check_reachable(config.ray_address)
    mine = f"Ray {ray.__version__}, Python {platform.python_version()}"
    try:
        ray.init(address=config.ray_address, namespace=config.ray_namespace, log_to_driver=False, logging_level="ERROR")
    except ray.exceptions.AuthenticationError as error:
        raise AuthenticationError(
            f"the Ray cluster {config.ray_address} refuses our token: {_first_line(error)}",
            mend="set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the cluster's token file",
        ) from error
    except (RuntimeError, ConnectionError, ValueError, ray.exceptions.RayError) as error:
        if "Version mismatch" in str(error):
            raise ClusterError(
                f"the Ray cluster {config.ray_address} has other versions than this machine ({mine}): "
                f"{_one_line(error)}",
                mend="install the cluster's Ray and Python versions here, or ours there",
            ) from error
        # Ray says the same for a wrong token and for a port that is no GCS; its reason is on stderr only
        raise ClusterError(
            f"something listens at {config.ray_address}, but it does not let us in as Ray: {_first_line(error)}",
            mend="check the token (RAY_AUTH_TOKEN_PATH names its file), and that this is the GCS address (host:port)",
        ) from error


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S):
            return
    except (OSError, ValueError) as error:
        raise ClusterError(f"cannot connect to the Ray cluster {address}: {error}", mend=_ADDRESS_MEND) from error


# ------------------------------------------------------------------------------- is our package there
def _check_nodes(config: GatewayConfig) -> None:
    """Run a probe on each node of a cluster that is not ours; it is sent by value, so it needs nothing there."""
    ours = {"python": platform.python_version(), "ray": ray.__version__, "package": __version__}
    probe = ray.remote(num_cpus=0, max_retries=0)(_probe_by_value())
    for node in (entry for entry in ray.nodes() if entry["Alive"]):
        where = node["NodeManagerHostname"]
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        try:
            found = ray.get(probe.options(scheduling_strategy=strategy, **runtime_env(config)).remote(), timeout=60)
        except ray.exceptions.RayError as error:
            raise ClusterError(f"node {where} of the Ray cluster runs no task: {_first_line(error)}") from error
        check_versions(where, found, ours)


def _probe_by_value() -> Callable[[], dict[str, str]]:
    def probe() -> dict[str, str]:
        import platform as node_platform

        import ray as node_ray

        found = {"python": node_platform.python_version(), "ray": node_ray.__version__}
        try:
            import jupyter_gpu_release

            return found | {"package": jupyter_gpu_release.__version__}
        except ImportError as error:
            return found | {"error": str(error)}

    probe.__module__ = "__main__"  # makes cloudpickle send the code, not a reference to this module
    return probe


def check_versions(where: str, theirs: dict[str, str], ours: dict[str, str]) -> None:
    """Raise :class:`ClusterError` naming both versions and the mend when a node does not match this machine."""
    for part, name in (("ray", "Ray"), ("python", "Python")):
        same = theirs[part] == ours[part] if part == "ray" else _minor(theirs[part]) == _minor(ours[part])
        if not same:
            raise ClusterError(
                f"node {where} of the Ray cluster has {name} {theirs[part]}, this machine has {name} {ours[part]}",
                mend=f"use {name} {theirs[part]} here, or {name} {ours[part]} on the cluster",
            )
    if "error" in theirs:
        raise ClusterError(
            f"jupyter_gpu_release cannot be imported on node {where}: {theirs['error']}",
            mend=f"there: pip install jupyter-gpu-release=={ours['package']}",
        )
    if theirs["package"] != ours["package"]:
        raise ClusterError(
            f"node {where} has jupyter_gpu_release {theirs['package']}, this machine has {ours['package']}",
            mend=f"there: pip install jupyter-gpu-release=={ours['package']}",
        )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


# --------------------------------------------------------------------------------------- the gateway
def _find_or_create(config: GatewayConfig) -> tuple[Any, bool]:
    try:
        return ray.get_actor(config.gateway_actor, namespace=config.ray_namespace), False
    except ValueError:
        pass
    from .app import Gateway

    options = {
        "name": config.gateway_actor, "namespace": config.ray_namespace, "lifetime": "detached", "num_cpus": 0,
        "max_restarts": -1, "max_concurrency": 1000,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(_head_node(), soft=False), **runtime_env(config),
    }  # fmt: skip
    return ray.remote(Gateway).options(**options).remote(encode(config)), True


def _head_node() -> str:
    for entry in ray.nodes():
        if entry["Alive"] and _HEAD in entry["Resources"]:
            return str(entry["NodeID"])
    raise ClusterError("the Ray cluster has no head node that is alive")


def _wait_for(gateway: Any) -> Deployed:
    """Until the gateway serves; its own reason when it cannot."""
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        try:
            answer = msgspec.json.decode(ray.get(gateway.describe.remote(), timeout=_CREATE_S), type=Deployed)
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the gateway does not start: {_first_line(error)}", mend="see Ray's logs") from error
        if answer.ok:
            if answer.version != __version__:
                raise ClusterError(
                    f"a gateway of jupyter_gpu_release {answer.version} runs there, this is {__version__}",
                    mend="stop it first, or install the same version here",
                )
            return answer
        if answer.code:
            raise ClusterError(answer.message, mend=answer.mend)
        time.sleep(0.02)
    raise ClusterError(f"the gateway did not serve within {_ANSWER_S:g} s", mend="see log/gateway.log in its home")


def _wait_for_http(config: GatewayConfig, url: str) -> None:
    """Until it answers to its token over HTTP and can take runs."""
    from ..client.rest import GatewayClient

    token = read_secret(Path(config.token_file))
    deadline = time.monotonic() + config.ready_timeout_s
    with GatewayClient(url, token, timeout_s=5.0) as client:
        while not (health := client.health()).ready:
            if time.monotonic() > deadline:
                problems = "; ".join(health.problems) or "no node agent has introduced itself"
                raise ClusterError(f"the gateway is up, but not ready: {problems}", mend="`jupyter gpu doctor`")
            time.sleep(0.05)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def main(arguments: list[str]) -> int:
    """Deploy as the file says; whatever goes wrong is in the printed line."""
    try:
        if len(arguments) != 1:
            raise ClusterError("usage: python -m jupyter_gpu_release.broker.deploy CONFIG.json")
        answer = deploy(read_config(Path(arguments[0])))
    except GpuReleaseError as error:
        answer = Deployed(False, code=error.code, message=error.message, mend=error.mend)
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    return 0 if answer.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
