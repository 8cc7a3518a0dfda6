"""``jupyter gpu doctor``: every check, a finding each, and its mend."""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from .._version import __version__
from ..client.config import configured_target
from ..client.discovery import Target
from ..client.home import Connection, HomePaths
from ..client.rest import GatewayClient
from ..errors import GpuReleaseError
from ..local_cluster.start import running_connection
from ..protocol.rest import GpuRow, NodeCheck, NodeChecks, NodeRow, StatusDocument
from ..protocol.session import PROTOCOL, is_understood
from ..store.layout import own_store
from .doctor_checks import (
    BROKEN,
    Finding,
    Report,
    broken,
    check_certificate,
    check_clocks,
    check_drivers,
    check_gpus,
    check_home,
    check_leftovers,
    check_network,
    check_store,
    check_versions,
    note,
    ok,
)
from .runs import print_json
from .tables import output_console, print_findings

#: a store that hangs shall be found, not waited for without end (each node has 20 s)
_PATIENCE_S = 40.0


def run(arguments: argparse.Namespace) -> int:
    """Exit status 1 when something is broken."""
    findings = list(_findings(HomePaths.from_environment()))
    healthy = all(finding.level != BROKEN for finding in findings)
    if arguments.json:
        print_json(Report(healthy, findings))
    else:
        print_findings(output_console(), findings)
    return 0 if healthy else 1


def _findings(home: HomePaths) -> Iterator[Finding]:
    yield from check_versions()
    yield from check_home(home)
    yield from check_gpus()
    try:
        target = configured_target()
    except GpuReleaseError as error:
        yield broken("gateway", error.message, error.hint)
        target = None
    if target is None or target.store:
        store = (target and target.store) or os.environ.get("JUPYTER_GPU_STORE") or home.store
        yield check_store(home, Path(store).expanduser(), is_used=target is not None)
    if target is not None:
        yield from _check_cluster(home, target)
    else:
        yield note("cluster", "none is running here and no gateway is configured", "the first %%gpu_train starts one")
    yield from check_leftovers()


def _check_cluster(home: HomePaths, target: Target) -> Iterator[Finding]:
    connection = target.connection
    if connection is not None and connection.embedded:
        if running_connection(home) is None:
            yield broken("cluster", "the connection file names a cluster that is dead", "jupyter gpu stop")
            return
        yield ok("cluster", f"daemon {connection.daemon_pid}, Ray at {connection.ray_address}")
    try:
        with GatewayClient.for_target(target, timeout_s=_PATIENCE_S) as gateway:
            health, status, checks = gateway.health(), gateway.status(), gateway.checks()
    except GpuReleaseError as error:
        yield broken("gateway", error.message, error.hint)
        yield check_network(target.url, _PATIENCE_S)
        return
    yield ok("gateway", f"{target.url} answers and knows the token")
    if not target.store:  # kernels take the path that the gateway names
        yield check_store(home, own_store(Path(health.store)), is_used=True)
    yield _check_version(health.version, health.protocol, connection)
    for problem in health.problems:
        yield broken("gateway", problem, "see the logs below the runtime folder, or start the cluster again")
    yield from _check_certificate(target)
    yield from check_clocks(checks, time.time())
    yield from _check_nodes(status, checks)
    yield from check_drivers(checks)
    yield from _check_collecting(target)


def _check_certificate(target: Target) -> Iterator[Finding]:
    context, at = target.tls(), urlsplit(target.url)
    if context is None:
        return
    try:
        with (
            socket.create_connection((at.hostname or "", at.port or 443), timeout=_PATIENCE_S) as line,
            context.wrap_socket(line, server_hostname=at.hostname) as tls,
        ):
            ends_at = ssl.cert_time_to_seconds(str((tls.getpeercert() or {})["notAfter"]))
    except (OSError, KeyError) as error:  # behind a proxy of this machine, say
        yield note("tls", f"the gateway's certificate cannot be looked at: {error}")
        return
    yield check_certificate((ends_at - time.time()) / 86400)


def _check_collecting(target: Target) -> Iterator[Finding]:
    """Report what a collection would meet (a dry run): graphs that keep every blob, runs of others."""
    try:
        with GatewayClient.for_target(target, timeout_s=_PATIENCE_S) as gateway:
            found = gateway.collect(dry_run=True)
    except GpuReleaseError as error:
        yield broken("gc", error.message, error.hint)
        return
    for text in found.notes:
        problem, _, hint = text.partition("\n  → ")
        if hint:
            yield broken("gc", problem, hint)
        else:
            yield note("gc", problem)
    if not found.notes:
        yield ok("gc", "nothing keeps unused results from being freed")


def _check_version(version: str, protocol: int, connection: Connection | None) -> Finding:
    if not is_understood(protocol):
        return broken(
            "versions",
            f"the gateway speaks protocol {protocol} (version {version}), this client {PROTOCOL} ({__version__})",
            "install the same version of jupyter-gpu-release on both sides, or versions that are one apart",
        )
    if version != __version__:
        return note("versions", f"gateway {version}, client {__version__}: they understand each other")
    ray = f", Ray {connection.ray_version}" if connection is not None and connection.ray_version else ""
    return ok("versions", f"gateway and client {version}{ray}")


def _check_nodes(status: StatusDocument, checks: NodeChecks) -> Iterator[Finding]:
    for row in status.nodes:
        if row.drained:
            yield note("nodes", row.drained, f"jupyter gpu nodes resume {row.host}")
        for gpu in (gpu for gpu in row.gpus if gpu.drained):
            yield note("gpus", gpu.drained, _mend_of_gpu(row, gpu))
    remarks = {node.host: (len(node.gpus), node.notes) for node in status.nodes}
    for node in checks.nodes:
        if node.agent_problem:
            yield broken("nodes", f"{node.host}: {node.agent_problem}", "Ray restarts the agent; see Ray's logs there")
            continue
        gpus, notes = remarks.get(node.host, (0, []))
        yield ok("nodes", f"{node.host}: {gpus} GPUs, Python {node.python}, package {node.version}")
        if node.version != __version__:
            yield note("versions", f"{node.host} has version {node.version}, this is {__version__}")
        yield _check_node_store(node, checks.store)
        for remark in notes:
            yield note("nodes", f"{node.host}: {remark}")


def _mend_of_gpu(node: NodeRow, gpu: GpuRow) -> str:
    if " is drained by " in gpu.drained:
        return f"jupyter gpu nodes resume {node.host}:{gpu.index}"
    return "once it is well it comes back by itself"


def _check_node_store(node: NodeCheck, store: str) -> Finding:
    if not node.store_problem:
        return ok("store", f"{store} can be written and read from {node.host}")
    problem, _, hint = node.store_problem.partition("\n  → ")
    return broken("store", f"{node.host}: {problem}", hint or "make the store writable there, under the same path")
