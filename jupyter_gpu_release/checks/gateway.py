"""The gateway and, as it tells, its cluster: asked over HTTP, so from whatever process has a token."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .._version import __version__
from ..client.discovery import Target
from ..client.home import Connection
from ..client.rest import GatewayClient
from ..errors import GpuReleaseError, StoreError
from ..protocol.rest import Health, NodeChecks, StatusDocument
from ..protocol.session import PROTOCOL, is_understood
from ..store.identity import check_identity
from ..store.layout import own_store
from ..store.run_folders import probe_store
from .certificate import check_certificate
from .finding import Finding, at, broken, broken_by, note, ok
from .limits import findings_within
from .network import PORT_S, check_names, check_network, check_ports
from .nodes import (
    check_clocks,
    check_drivers,
    check_environments,
    check_frameworks,
    check_nodes,
    check_process_limits,
    check_pythons,
    check_shared_memory,
    check_stores,
)

#: a store that hangs shall be found, not waited for without end: each node has 30 s, who asks for all of this 45
PATIENCE_S = 33.0
#: for the store, as it is seen from here
STORE_S = 10.0
_SAME_VERSION = "install the same version of jupyter-gpu-release on both sides, or versions that are one apart"
#: for a first answer of the gateway: what comes after it must have its time, too
_ANSWER_S = 5.0
StoreCheck = Callable[[Path], Finding]


def check_cluster(target: Target, check_store: StoreCheck, *, python: str = "") -> Iterator[Finding]:
    """Ask the gateway for everything, and the way to it where it does not answer.

    ``check_store``: looks from here at the store that the gateway names, where no setting names one. ``python``: the
    version of a kernel's, whose functions the nodes are to run.
    """
    try:
        with GatewayClient.for_target(target, timeout_s=_ANSWER_S) as gateway:  # one that is well takes milliseconds
            health = gateway.health()
        with GatewayClient.for_target(target, timeout_s=PATIENCE_S) as gateway:
            status, checks = gateway.status(), gateway.checks()
    except GpuReleaseError as error:
        yield broken_by("gateway", error, where="gateway")
        yield check_network(target.url, PORT_S)
        yield from check_certificate(target, time.time(), PORT_S)
        return
    yield ok("gateway", f"{target.url} answers and knows the token", where="gateway")
    folder = used_store(target.store or health.store)
    if not target.store:  # kernels take the path that the gateway names
        yield from check_within(STORE_S, check_store, folder)
    yield from findings_within(STORE_S, {"store": lambda: check_same_store(folder, health.store_id)})
    yield from at("gateway", _check_health(health, target))
    yield from check_told(status, checks, time.time())
    yield from check_stores(checks, health.store_id)
    yield from check_pythons(checks, python)


def _check_health(health: Health, target: Target) -> Iterator[Finding]:
    yield check_version(health.version, health.protocol, target.connection)
    for problem in health.problems:
        yield broken("gateway", problem, "see the logs below the runtime folder, or start the cluster again")
    yield from check_head(health)
    yield from check_certificate(target, time.time(), PORT_S)


def check_head(health: Health) -> Iterator[Finding]:
    """Tell if runs outlive the head; on one machine nothing does."""
    if health.nodes < 2:
        return
    if health.remembers_head:
        yield ok("head", "Ray keeps the head's memory on disk: runs on other nodes outlive a head that is lost")
        return
    said = "Ray's memory is lost with the head, and all runs with it"
    yield note("head", said, "where you start Ray yourself: RAY_gcs_storage=rocksdb (docs: operate/head-lost.md)")


def check_told(status: StatusDocument, checks: NodeChecks, now_s: float) -> Iterator[Finding]:
    """All that gateway and nodes have told."""
    yield from check_files(checks)
    yield from check_clocks(checks, now_s)
    yield from check_nodes(status, checks)
    yield from check_drivers(checks)
    yield from check_frameworks(checks)
    yield from check_shared_memory(checks)
    yield from check_process_limits(checks)
    yield from check_environments(checks)
    yield from check_ports(checks)
    yield from check_names(checks)


def check_files(checks: NodeChecks) -> Iterator[Finding]:
    """Files of the operator's hold as they are now: queues, named environments."""
    for each in checks.files:
        said = f"{each.problem}; until it is mended the last good version holds"
        yield broken(
            "files", said, each.mend or "mend that file: the gateway reads it again by itself", where="gateway"
        )


def check_version(version: str, protocol: int, connection: Connection | None = None) -> Finding:
    """The gateway's version and protocol against this package's."""
    if not is_understood(protocol):
        said = f"the gateway speaks protocol {protocol} (version {version}), this client {PROTOCOL} ({__version__})"
        return broken("versions", said, _SAME_VERSION)
    if version != __version__:
        said = f"gateway {version}, client {__version__}: they understand each other"
        return note("versions", said, "nothing to do today; install the same version when it suits")
    ray = f", Ray {connection.ray_version}" if connection is not None and connection.ray_version else ""
    return ok("versions", f"gateway and client {version}{ray}")


def used_store(store: str) -> Path:
    """The folder that this process's user uses of a store."""
    return own_store(Path(store).expanduser())


def check_within(limit_s: float, check_store: StoreCheck, folder: Path) -> Iterator[Finding]:
    """Look at a store that may hang."""
    yield from findings_within(limit_s, {"store": lambda: [check_store(folder)]})


def check_same_store(folder: Path, store_id: str) -> Iterator[Finding]:
    """The store that is seen from here is the gateway's; one that is not there is another finding."""
    if not store_id or not os.path.isdir(folder):
        return
    try:
        check_identity(folder, store_id)
    except StoreError as error:
        yield broken("store", error.message, "mount the shared filesystem here, or JUPYTER_GPU_STORE names where it is")


def check_used_store(folder: Path) -> Finding:
    """Write and read a small file in a store that a gateway uses, from here."""
    try:
        probe_store(folder)
    except StoreError as error:
        elsewhere = "JUPYTER_GPU_STORE names where this machine sees it"
        return broken("store", error.message, f"{error.hint} {elsewhere}" if error.hint else elsewhere)
    return ok("store", f"{folder} can be written and read from here")
