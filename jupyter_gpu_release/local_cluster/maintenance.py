"""Maintenance of a running cluster: what a ``stop`` would end, ``stop --drain``, and ``start --upgrade``."""

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
from ..errors import ClusterError, ConflictError, GatewayUnavailableError, GpuReleaseError, NoSuchNodeError
from ..presentation.wording import name_of, run_word
from ..protocol.admin import NodeDrain
from ..protocol.rest import RunRow, StatusDocument
from ..protocol.states import RunState
from ..units import format_count, format_seconds
from .existing_ray import ask_ray, environment_for_ray
from .launch_spec import read_plans
from .ray_head import ray_environment
from .start import Say, StartOptions, running_connection, settings_of, start_lock

_LOOK_S = 1.0
_REASON = "the cluster is about to be stopped"
#: a gateway that has answered and falls silent is being restarted by Ray: within this it answers again, or is gone
_BACK_S = 60.0
_MOST_NAMED = 20


def unended_runs(status: StatusDocument) -> list[str]:
    """A line for each run that the cluster's end would end: those that run first, then those that wait."""
    rows = [row for row in status.runs if row.state != RunState.PERSISTING.word]  # its results are kept in any case
    rows.sort(key=lambda row: not RunState.of(row.state).holds_gpu)
    count = len(rows) + max(0, status.waiting - sum(not RunState.of(row.state).holds_gpu for row in rows))
    named = [_line(row) for row in rows[:_MOST_NAMED]]
    return named if count == len(named) else [*named, *[f"and {count - len(named)} more"]]


def kept_leases(status: StatusDocument) -> list[str]:
    """A line for each warm lease: its end costs nobody a result."""
    return [f"{format_count(row.gpus, 'GPU')} kept warm after run {row.run} of {row.user}" for row in status.warm]


def _line(row: RunRow) -> str:
    seconds = row.held_s if RunState.of(row.state).holds_gpu else row.queued_s
    detached = ", detached" if row.detached else ""
    name = f": {name_of(row)}" if name_of(row) else ""
    state = f"{run_word(row.state)} for {format_seconds(seconds)}"
    return f"run {row.run} of {row.user}, {state}, {format_count(row.gpus, 'GPU')}{detached}{name}"


def wait_until_drained(gateway: GatewayClient, say: Callable[[str], None]) -> StatusDocument:
    """Return the status when no run holds anything and none can begin; those that wait go on waiting.

    Given up (Ctrl-C, an error), runs begin again as before. Raises :class:`GatewayUnavailableError` for a gateway that
    does not answer at first, or for a minute.
    """
    drained: set[str] = set()
    try:
        status = _drained(gateway, drained)
        while left := _held(status):
            say(f"nothing new begins; waiting for {format_count(left, 'run')} to end")
            time.sleep(_LOOK_S)
            status = _answered(lambda: _drained(gateway, drained), say)
        return status
    except BaseException:
        for host in drained:
            with contextlib.suppress(NoSuchNodeError, ConflictError):  # it left; it was never drained
                gateway.resume_node(NodeDrain(host))
        raise


def _answered(ask: Callable[[], StatusDocument], say: Callable[[str], None]) -> StatusDocument:
    """Ask a gateway that has answered before, and which Ray may just be restarting."""
    until_s = time.monotonic() + _BACK_S
    while True:
        try:
            return ask()
        except GatewayUnavailableError:
            if time.monotonic() > until_s:
                raise
        say("the gateway does not answer just now; what runs goes on")
        time.sleep(_LOOK_S)


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
