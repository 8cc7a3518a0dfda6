"""Maintenance of a running cluster: it is drained (``stop --drain``), its gateway upgraded (``start --upgrade``)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from .._version import __version__
from ..client.autostart import Ready
from ..client.home import HomePaths
from ..client.rest import GatewayClient
from ..errors import ClusterError, ConflictError, GpuReleaseError, NoSuchNodeError
from ..protocol.admin import NodeDrain
from ..protocol.rest import StatusDocument
from ..protocol.states import RunState
from ..units import format_count
from .existing_ray import ask_ray, environment_for_ray
from .launch_spec import read_plans
from .ray_head import ray_environment
from .start import Say, StartOptions, running_connection, settings_of, start_lock

_LOOK_S = 1.0
_REASON = "the cluster is about to be stopped"


def wait_until_drained(gateway: GatewayClient, say: Callable[[str], None]) -> None:
    """Return when no run holds anything and none can begin; those that wait go on waiting.

    Given up (Ctrl-C, an error), runs begin again as before.
    """
    drained: set[str] = set()
    try:
        while left := _held(_drained(gateway, drained)):
            say(f"nothing new begins; waiting for {format_count(left, 'run')} to end")
            time.sleep(_LOOK_S)
    except BaseException:
        for host in drained:
            with contextlib.suppress(NoSuchNodeError, ConflictError):  # it left; it was never drained
                gateway.resume_node(NodeDrain(host))
        raise


def _drained(gateway: GatewayClient, drained: set[str]) -> StatusDocument:
    """Drain what is not: also nodes that came meanwhile, and all again after the gateway's restart."""
    status = gateway.status()
    for host in {node.host for node in status.nodes if not node.drained}:
        drained.add(host)  # first: an interrupt may come after the gateway did it, and before its answer
        try:
            status = gateway.drain_node(NodeDrain(host, _REASON, passing=True))
        except GpuReleaseError:  # it is gone just now
            continue
    return status


def _held(status: StatusDocument) -> int:
    return sum(RunState.of(run.state).holds_gpu for run in status.runs)


def upgrade(*, home: HomePaths, asked: StartOptions, progress: Say) -> Ready:
    """Put this version's gateway in the place of the one that runs, with the settings of its start.

    Raises
    ------
    ConflictError
        The cluster is not what was asked for in so many words.
    ClusterError
        Nothing runs; a node has another version than this (the old gateway goes on then); the new one does not start.
    """
    began = time.monotonic()
    home.create()
    with start_lock(home, progress):
        running = running_connection(home)
        if running is None:
            raise ClusterError("there is no cluster whose gateway could be upgraded", hint="run `jupyter gpu start`")
        asked.refuse_another(running)
        config = msgspec.structs.replace(settings_of(running), ray_address=running.ray_address)
        progress(f"putting version {__version__} of the gateway in the place of {running.version}")
        plan = next((plan for plan in read_plans() if plan.runtime == running.runtime), None)
        environment = environment_for_ray(config.ray_address) if plan is None else ray_environment(plan, os.environ)
        deployed = ask_ray(HomePaths(Path(config.home)), config, "upgrade", environment=environment)
        connection = msgspec.structs.replace(running, url=deployed.url, version=__version__)
        home.write_connection(connection)
    elapsed_s = round(time.monotonic() - began, 3)
    return Ready(connection, started=False, gpus=deployed.gpus_total, elapsed_s=elapsed_s, replaced=running.version)
