"""Looking at an embedded cluster from outside."""

from __future__ import annotations

import stat
from pathlib import Path

import psutil

from jupyter_gpu_release.cli.processes import cluster_processes
from jupyter_gpu_release.client.home import Connection


def quiet(text: str) -> None:
    """Progress that nobody reads."""


def members(connection: Connection) -> list[psutil.Process]:
    """All processes of the cluster."""
    pids = cluster_processes(connection.cluster, connection.keeper_pid, connection.runtime)
    return [psutil.Process(pid) for pid in pids]


def mode(path: Path) -> int:
    """Permission bits."""
    return stat.S_IMODE(path.stat().st_mode)
