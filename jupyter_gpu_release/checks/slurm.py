"""The pool of nodes that Slurm lends to this home's cluster."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..client.home import HomePaths
from ..errors import ClusterError
from ..host.slurm import Slurm, job_name
from ..protocol.config import GatewayConfig
from .finding import Finding, broken_by, ok


def check_slurm(home: HomePaths, slurm: Slurm | None = None) -> Iterator[Finding]:
    """Ask Slurm for the pool's jobs; a cluster without a pool has no finding."""
    try:
        config = msgspec.json.decode(home.gateway_config.read_bytes(), type=GatewayConfig)
    except (OSError, msgspec.MsgspecError):
        return
    if config.slurm is None:
        return
    try:
        jobs = (slurm or Slurm()).jobs(job_name(config.cluster))
    except ClusterError as error:
        yield broken_by("slurm", error)
        return
    listed = "; ".join(f"{job.job} {job.state.lower()}" for job in jobs) or "none"
    yield ok("slurm", f"Slurm answers; jobs of the pool: {listed} (at most {config.slurm.max_nodes})")
