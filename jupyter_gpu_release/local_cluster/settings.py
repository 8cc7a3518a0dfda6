"""Settings of the gateway that an operator gives through the environment of ``jupyter gpu start``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

from ..client.home import HomePaths
from ..errors import OptionError
from ..protocol import config
from ..protocol.config import GatewayConfig, RetentionPolicy, StoreMode
from ..units import parse_bytes, parse_seconds
from .notify_file import notify_rules
from .store_modes import store_settings

_OLDER_THAN, _KEEP, _QUOTA = "JUPYTER_GPU_GC_OLDER_THAN", "JUPYTER_GPU_GC_KEEP", "JUPYTER_GPU_GC_QUOTA"
_EVERY = "JUPYTER_GPU_GC_EVERY"
_LEAST_EVERY_S = 10
_GRACE = "JUPYTER_GPU_RECONNECT_GRACE_S"
_NODE_GRACE = "JUPYTER_GPU_NODE_GRACE"
_MAX_KEEP = "JUPYTER_GPU_MAX_KEEP"
_PRELOAD = "JUPYTER_GPU_PRELOAD"
_SPOOL = "JUPYTER_GPU_SPOOL"
_MEMORY = "JUPYTER_GPU_PERSIST_MEMORY"
_RATE = "JUPYTER_GPU_PERSIST_RATE"
_USER_RATE = "JUPYTER_GPU_USER_RATE"
_HOSTS = "JUPYTER_GPU_ALLOWED_HOSTS"


class PersistSettings(TypedDict):
    """Settings of :class:`.GatewayConfig` about results that are not durable yet."""

    spool: str
    persist_memory_bytes: int
    persist_bytes_per_s: int


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
    return GatewayConfig(
        home=str(home.root),
        token_file=str(home.token),
        preload=preload_from_environment(),
        hash_seed=hash_seed_from_environment(),
        reconnect_grace_s=grace_from_environment(),
        node_grace_s=node_grace_from_environment(),
        max_keep_s=max_keep_from_environment(),
        retention=retention_from_environment(),
        gc_interval_s=collection_interval_from_environment(),
        notify=notify_rules(home, os.environ),
        allowed_hosts=[*hosts, *hosts_from_environment()],
        user_requests_per_s=user_rate_from_environment(),
        **persist_from_environment(spool),
        **users,
        **own,
    )


def persist_from_environment(default_spool: Path | None = None) -> PersistSettings:
    """Settings for results that wait for their store: where, in how much memory, and how fast they are written.

    ``JUPYTER_GPU_SPOOL``: a folder on a local disk of each node; ``JUPYTER_GPU_PERSIST_MEMORY=8GiB``: of each node (a
    quarter of it); ``JUPYTER_GPU_PERSIST_RATE=200MB``: bytes a second and run (no limit).
    """
    spool = os.environ.get(_SPOOL, "")
    if spool and not Path(spool).is_absolute():
        raise OptionError(f"{_SPOOL}: {spool} is not an absolute path", hint="name a folder on a local disk")
    return {
        "spool": spool or (str(default_spool) if default_spool is not None else ""),
        "persist_memory_bytes": _bytes(_MEMORY),
        "persist_bytes_per_s": _bytes(_RATE),
    }


def user_rate_from_environment() -> float:
    """``JUPYTER_GPU_USER_RATE``: requests of one user a second in the long run (200)."""
    text = os.environ.get(_USER_RATE) or "200"
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) or float(text) < 1:
        raise OptionError(f"{_USER_RATE}={text}: not a number of at least 1", hint=f"write {_USER_RATE}=200")
    return float(text)


def _bytes(name: str) -> int:
    text = os.environ.get(name, "")
    return parse_bytes(text, option=name) if text else 0


def hash_seed_from_environment() -> str:
    """``PYTHONHASHSEED``, if it is a number: the kernel that starts a cluster has it, too; else the usual one."""
    return config.hash_seed_in(os.environ) or config.DEFAULT_HASH_SEED


def preload_from_environment() -> list[str]:
    """``JUPYTER_GPU_PRELOAD=torch,numpy``: libraries that the fork servers import; empty: the default list."""
    names = [name.strip() for name in os.environ.get(_PRELOAD, "").split(",") if name.strip()]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise OptionError(
                f"{_PRELOAD}: {name} is not the name of a module", hint="write it like torch,numpy,pandas"
            )
    return names


def hosts_from_environment() -> list[str]:
    """``JUPYTER_GPU_ALLOWED_HOSTS=gpu.example.org``: names under which clients reach the gateway (behind a proxy)."""
    names = [name.strip() for name in os.environ.get(_HOSTS, "").split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:]+", name):
            raise OptionError(
                f"{_HOSTS}: {name} is not the name of a host",
                hint="write it like gpu.example.org, without http:// and port",
            )
    return names


def retention_from_environment() -> RetentionPolicy:
    """``JUPYTER_GPU_GC_OLDER_THAN``, ``_KEEP`` and ``_QUOTA``: what the gateway collects by itself (nothing)."""
    return RetentionPolicy(
        older_than_s=parse_seconds(os.environ.get(_OLDER_THAN) or "0", option=_OLDER_THAN),
        keep=_count(os.environ.get(_KEEP) or "0", _KEEP),
        quota_bytes=quota_bytes(os.environ.get(_QUOTA) or "0", _QUOTA),
    )


def quota_bytes(text: str, option: str) -> int:
    """A size, where ``0`` means no limit."""
    return 0 if text.strip() == "0" else parse_bytes(text, option=option)


def _count(text: str, option: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"{option}={text}: not a number of runs", hint=f"write {option}=20, or 0 for no limit")
    return int(text)


def collection_interval_from_environment() -> float:
    """``JUPYTER_GPU_GC_EVERY``: time between two collections (1 h)."""
    seconds = parse_seconds(os.environ.get(_EVERY) or "1h", option=_EVERY)
    if seconds < _LEAST_EVERY_S:
        raise OptionError(f"{_EVERY} is less than {_LEAST_EVERY_S} s", hint=f"write {_EVERY}=1h")
    return seconds


def grace_from_environment() -> float:
    """``JUPYTER_GPU_RECONNECT_GRACE_S``: how long a closed kernel's runs wait for it to come back (30 s)."""
    return parse_seconds(os.environ.get(_GRACE) or "30", option=_GRACE)


def node_grace_from_environment() -> float:
    """``JUPYTER_GPU_NODE_GRACE``: how long a node that does not answer is waited for (60 s)."""
    return parse_seconds(os.environ.get(_NODE_GRACE) or "60s", option=_NODE_GRACE)


def max_keep_from_environment() -> float:
    """``JUPYTER_GPU_MAX_KEEP``: the longest ``--keep`` of a cell (10 min); ``0``: nothing is kept."""
    return parse_seconds(os.environ.get(_MAX_KEEP) or "10m", option=_MAX_KEEP)
