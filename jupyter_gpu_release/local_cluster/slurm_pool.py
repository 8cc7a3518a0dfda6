"""A pool of nodes borrowed from Slurm: its file, what Slurm says of it before the start, and its end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import yaml

from ..client.home import HomePaths
from ..errors import ClusterError, OptionError
from ..host.slurm import Slurm, check_pool, job_name
from ..protocol.config import SlurmPool
from ..settings.setting import read_text

_HINT = "see `jupyter gpu docs operate/slurm`"
_GONE_S = 8.0


def read_pool(path: str) -> SlurmPool:
    """Read the file of ``--slurm``; raises :class:`OptionError` that names what is wrong in it."""
    text = read_text(Path(path).expanduser(), "--slurm", _HINT)
    try:
        pool = msgspec.convert(yaml.safe_load(text) or {}, SlurmPool)
    except yaml.YAMLError as error:
        raise OptionError(f"--slurm: cannot read {path}: {' '.join(str(error).split())}", hint=_HINT) from error
    except msgspec.ValidationError as error:
        known = ", ".join(SlurmPool.__struct_fields__)
        raise OptionError(f"--slurm: {path}: {error}", hint=f"it may have: {known}") from error
    check_pool(pool, f"--slurm: {path}")
    return pool


def check_jobs(pool: SlurmPool, home: HomePaths) -> None:
    """Have Slurm say now what it would refuse later; raises :class:`ClusterError` with its words."""
    Slurm().check(pool, job_name("check"), home.log / "slurm-check.log")


def own_address() -> str:
    """The first address of this machine beyond the loopback."""
    up = {name for name, facts in psutil.net_if_stats().items() if facts.isup}
    for name, addresses in psutil.net_if_addrs().items():
        for found in addresses:
            if name in up and found.family == socket.AF_INET and not found.address.startswith("127."):
                return str(found.address)
    return "127.0.0.1"


def end_jobs(cluster: str, say: Callable[[str], None]) -> None:
    """Have Slurm end all jobs of a cluster's pool, and wait a little until they are gone."""
    slurm, deadline = Slurm(), time.monotonic() + _GONE_S
    try:
        while jobs := [job.job for job in slurm.jobs(job_name(cluster))]:
            say(f"ending Slurm jobs {', '.join(jobs)}")
            slurm.cancel(jobs)
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
    except ClusterError as error:
        say(f"the pool's jobs could not be ended: {error.message}; without their head they end by themselves")
