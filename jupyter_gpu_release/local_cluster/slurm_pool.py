"""A pool of nodes borrowed from Slurm: its file, what Slurm says of it before the start, and its end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from ..client.home import HomePaths
from ..errors import ClusterError
from ..host.slurm import Slurm, check_pool, job_name
from ..protocol.config import SlurmPool
from ..settings.setting import read_text
from ..settings.yaml_document import YamlDocument
from .preflight import check_host

_HINT = "see `jupyter gpu docs operate/slurm`"
_GONE_S, _LOOK_S = 8.0, 0.5
#: interfaces of containers and virtual machines on this machine
_INNER = ("docker", "virbr", "veth", "br-", "podman", "cni", "lxc", "lxd")


def read_pool(path: str) -> SlurmPool:
    """Read the file of ``--slurm``; raises :class:`OptionError` that names what is wrong in it."""
    text = read_text(Path(path).expanduser(), "--slurm", _HINT)
    pool = YamlDocument(text, f"--slurm: {path}", _HINT).convert(SlurmPool)
    check_pool(pool, f"--slurm: {path}")
    return pool


def check_jobs(pool: SlurmPool, home: HomePaths) -> None:
    """Have Slurm say now what it would refuse later; raises :class:`ClusterError` with its words."""
    Slurm().check(pool, job_name("check"), home.log / "slurm-check.log")


def head_address(pool: SlurmPool, say: Callable[[str], None]) -> str:
    """The head's address for compute nodes, from the file or guessed; says who reaches it.

    Raises :class:`OptionError`: it is none of this machine's.
    """
    address = pool.address or own_address()
    check_host(
        address, "--slurm: address:", "write an address of this machine that compute nodes reach, or leave it out"
    )
    if address.startswith("127."):
        say(f"the head is at {address}: no other machine reaches it; address: in the file of --slurm sets another")
    else:
        say(f"Ray listens at {address} and at this machine's other addresses, without TLS: for trusted networks only")
    return address


def own_address() -> str:
    """The first address of this machine beyond the loopback and the networks of its own containers."""
    up = {name for name, facts in psutil.net_if_stats().items() if facts.isup}
    for name, addresses in psutil.net_if_addrs().items():
        for found in addresses:
            if (
                name in up
                and not name.startswith(_INNER)
                and found.family == socket.AF_INET
                and not found.address.startswith("127.")
            ):
                return str(found.address)
    return "127.0.0.1"


def end_jobs(cluster: str, say: Callable[[str], None]) -> None:
    """Have Slurm end all jobs of a cluster's pool, and wait a little until they are gone."""
    slurm, deadline, told = Slurm(), time.monotonic() + _GONE_S, set[str]()
    try:
        while jobs := {job.job for job in slurm.jobs(job_name(cluster)) if job.is_waiting or job.is_there}:
            if new := sorted(jobs - told):
                say(f"ending Slurm jobs {', '.join(new)}")
                slurm.cancel(new)
                told |= jobs
            if time.monotonic() > deadline:
                say(f"Slurm has not ended jobs {', '.join(sorted(jobs))} yet: see `squeue --me`")
                break
            time.sleep(_LOOK_S)
    except ClusterError as error:
        say(f"the pool's jobs could not be ended: {error.message}; without their head they end by themselves")
