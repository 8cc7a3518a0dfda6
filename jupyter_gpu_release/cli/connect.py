"""The gateway that a command talks to."""

from __future__ import annotations

import os
from pathlib import Path

from ..client.config import configured_target
from ..client.discovery import HEAD_LOST, HEAD_MEND, Target, has_lost_head
from ..client.home import HomePaths
from ..client.rest import GatewayClient
from ..errors import GatewayUnavailableError
from ..local_cluster.start import running_connection
from ..store.layout import own_store


def open_gateway(*, timeout_s: float = 10.0) -> GatewayClient:
    """A client for :func:`reachable_gateway`."""
    return GatewayClient.for_target(reachable_gateway(), timeout_s=timeout_s)


def store_without_cluster() -> Path | None:
    """The store of this machine's own cluster while that does not run, and no other gateway is named; else None."""
    target = configured_target()
    if target is not None and not (target.embedded and running_connection(HomePaths.from_environment()) is None):
        return None
    if target is not None and has_lost_head(target):  # its runs continue, whatever the store has of them
        return None
    named = os.environ.get("JUPYTER_GPU_STORE") or (target.store if target is not None else "")
    return own_store(Path(named).expanduser() if named else HomePaths.from_environment().store)


def reachable_gateway() -> Target:
    """The gateway that is configured, or this machine's own; says so at once when its cluster is gone."""
    target = configured_target()
    if target is None:
        raise GatewayUnavailableError(
            "no cluster is running on this machine, and no gateway is configured",
            hint="`jupyter gpu start` starts one here; JUPYTER_GPU_URL names another",
        )
    if target.embedded and running_connection(HomePaths.from_environment()) is None:
        if has_lost_head(target):
            raise GatewayUnavailableError(HEAD_LOST, hint=HEAD_MEND)
        raise GatewayUnavailableError(
            "this machine's own cluster has died (see log/cluster-daemon.log below JUPYTER_GPU_HOME)",
            hint="`jupyter gpu start` clears it away and starts a new one",
        )
    return target
