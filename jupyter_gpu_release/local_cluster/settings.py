"""Settings of the gateway that an operator gives through the environment of ``jupyter gpu start``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..client.home import HomePaths
from ..protocol.config import DEFAULT_HASH_SEED, GatewayConfig, RetentionPolicy, StoreMode, hash_seed_in
from ..settings.table import CLUSTER, RETENTION
from .notify_file import notify_rules
from .store_modes import store_settings


def gateway_config(
    home: HomePaths, *, spool: Path | None = None, hosts: Iterable[str] = (), **own: Any
) -> GatewayConfig:
    """A gateway's configuration: its ``own``, and what the environment says of all gateways of this home.

    ``spool``: where results wait for their store if the environment names no folder; ``hosts``: further names of the
    gateway. Raises :class:`OptionError` for what the environment has wrong.
    """
    users = store_settings(os.environ)
    if users["store_mode"] is StoreMode.OWNER:
        spool = None  # nobody but root enters this home
    given = {name: setting.given(os.environ) for name, setting in CLUSTER.items() if setting.variable}
    given["allowed_hosts"] = [*hosts, *given["allowed_hosts"]]
    given["spool"] = given["spool"] or str(spool or "")
    return GatewayConfig(
        home=str(home.root),
        token_file=str(home.token),
        # the kernel that starts a cluster has the same
        hash_seed=hash_seed_in(os.environ) or DEFAULT_HASH_SEED,
        retention=RetentionPolicy(**{name: setting.given(os.environ) for name, setting in RETENTION.items()}),
        notify=notify_rules(home, os.environ),
        **given,
        **users,
        **own,
    )
