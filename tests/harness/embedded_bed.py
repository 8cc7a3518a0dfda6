"""Looking at an embedded cluster from outside."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from jupyter_gpu_release.client.home import Connection
from jupyter_gpu_release.local_cluster.processes import cluster_processes


def quiet(text: str) -> None:
    """Progress that nobody reads."""


def members(connection: Connection) -> list[psutil.Process]:
    """All processes of the cluster."""
    pids = cluster_processes(connection.cluster, connection.daemon_pid, connection.runtime)
    return list(_living(pids))


def named(name: str, pids: Iterable[int]) -> list[psutil.Process]:
    """Those of ``pids`` that bear this name and live, but for what they have just forked: it bears it for a moment."""
    found = {}
    for process in _living(pids):
        with contextlib.suppress(psutil.NoSuchProcess):  # gone while we look
            if process.name() == name:
                found[process.pid] = process.ppid(), process
    return [process for parent, process in found.values() if parent not in found]


def _living(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def mode(path: Path) -> int:
    """Permission bits."""
    return stat.S_IMODE(path.stat().st_mode)
