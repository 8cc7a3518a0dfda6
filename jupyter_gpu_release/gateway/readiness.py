"""Before a gateway begins: is our package on the nodes. After it: does it answer, and is a node there."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._version import __version__
from ..client.home import read_secret
from ..errors import ClusterError, TooManyRequestsError
from ..host.certificates import client_context
from ..protocol.config import Deployed, GatewayConfig
from .cluster.agents import runtime_env
from .cluster.ray_calls import last_line

#: for the start of a worker on each node
_PROBE_S = 120.0
_ANSWER_S = 90.0
_CREATE_S = 60.0
_POLL_S = 0.05


def check_nodes(config: GatewayConfig) -> None:
    """Run a probe on all nodes at once, sent by value, so it needs nothing there. Raises :class:`ClusterError`."""
    ours = {"python": platform.python_version(), "ray": ray.__version__, "package": __version__}
    probe = ray.remote(num_cpus=0, max_retries=0)(_probe_by_value())
    asked = []
    for node in (entry for entry in ray.nodes() if entry["Alive"]):
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answer = probe.options(scheduling_strategy=strategy, **runtime_env(config)).remote()
        asked.append((node["NodeManagerHostname"], answer))
    deadline = time.monotonic() + _PROBE_S
    for where, answer in asked:
        try:
            found = ray.get(answer, timeout=max(0.0, deadline - time.monotonic()))
        except ray.exceptions.RayError as error:
            raise ClusterError(f"node {where} of the Ray cluster runs no task: {last_line(error)}") from error
        check_versions(where, found, ours)


def _probe_by_value() -> Callable[[], dict[str, str]]:
    def probe() -> dict[str, str]:
        import platform as node_platform

        import ray as node_ray

        found = {"python": node_platform.python_version(), "ray": node_ray.__version__}
        try:
            from jupyter_gpu_release._version import __version__ as installed

            return found | {"package": installed}
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
                hint=f"use {name} {theirs[part]} here, or {name} {ours[part]} on the cluster",
            )
    if "error" in theirs:
        raise ClusterError(
            f"jupyter_gpu_release cannot be imported on node {where}: {theirs['error']}",
            hint=f"install the package there as here, version {ours['package']}",
        )
    if theirs["package"] != ours["package"]:
        raise ClusterError(
            f"node {where} has jupyter_gpu_release {theirs['package']}, this machine has {ours['package']}",
            hint=f"install the package there as here, version {ours['package']}",
        )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def wait_until_ready(config: GatewayConfig, gateway: Any, *, created: bool) -> Deployed:
    """Wait until a gateway answers over HTTP and a node agent is up; raises :class:`ClusterError`."""
    answer = _wait_for(gateway)
    _wait_for_http(config, answer.url)
    answer = _wait_for(gateway)  # with the nodes that are up by now
    return msgspec.structs.replace(answer, created=created)


def _wait_for(gateway: Any) -> Deployed:
    """Wait until the gateway serves; raises with its own reason when it cannot."""
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        try:
            answer = msgspec.json.decode(ray.get(gateway.describe.remote(), timeout=_CREATE_S), type=Deployed)
        except ray.exceptions.ActorUnavailableError:  # Ray is restarting it just now
            time.sleep(_POLL_S)
            continue
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the gateway does not start: {last_line(error)}", hint="see Ray's logs") from error
        if answer.ok:
            if answer.version != __version__:
                raise ClusterError(
                    f"a gateway of jupyter_gpu_release {answer.version} runs there, this is {__version__}",
                    hint="`jupyter gpu start --upgrade` takes it over while cells go on; or install its version here",
                )
            return answer
        if answer.code:
            raise ClusterError(answer.message, hint=answer.hint)
        time.sleep(0.02)
    raise ClusterError(f"the gateway did not serve within {_ANSWER_S:g} s", hint="see log/gateway.log in its home")


def _wait_for_http(config: GatewayConfig, url: str) -> None:
    """Wait until it answers to its token over HTTP and can take runs."""
    from ..client.rest import GatewayClient

    token = read_secret(Path(config.token_file))
    deadline = time.monotonic() + config.ready_timeout_s
    tls = client_context(own=config.tls_cert) if config.tls_cert else None
    poll_s = max(_POLL_S, 1 / config.user_requests_per_s)  # what a user may ask at once is left to others
    problems = ""
    with GatewayClient(url, token, timeout_s=5.0, tls=tls) as client:
        while time.monotonic() <= deadline:
            try:
                health = client.health()
            except TooManyRequestsError as error:  # somebody else uses this token, too
                problems = error.message
            else:
                if health.ready:
                    return
                problems = "; ".join(health.problems) or "no node agent has introduced itself"
            time.sleep(poll_s)
    raise ClusterError(f"the gateway is up, but not ready: {problems}", hint="`jupyter gpu doctor`")
