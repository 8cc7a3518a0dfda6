"""Asks of requests as runs of the policy, and places for them as slots of a lease."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..protocol.runs import ResourceAsk
from .decisions import Slot
from .workload import GPU, Needs, Rank, Run


def to_run(
    run: str,
    ask: ResourceAsk,
    *,
    queue: str = "",
    user: str = "",
    priority: int = 50,
    submitted_at: float = 0.0,
    campaign: str = "",
    limit_s: float | None = None,
) -> Run:
    """A waiting run. What it has on one node is one rank of the policy's: it is all there or not at all."""
    return Run(
        run=run,
        queue=queue,
        ranks=(Rank(),) * ask.nodes,
        gpus_per_rank=ask.gpus * GPU // ask.nodes,
        min_ranks=ask.nodes,
        priority=priority,
        user=user,
        submitted_at=submitted_at,
        campaign=campaign,
        limit_s=limit_s,
        nodes=ask.nodes,
        needs=needs(ask),
        cpus_per_rank=cpus_needed(ask),
    )


def needs(ask: ResourceAsk) -> Needs:
    """The properties of nodes that were asked for."""
    return Needs(
        gpu_type=ask.gpu_type or "",
        min_gpu_memory_bytes=ask.min_gpu_memory_bytes or 0,
        cpus=math.ceil(ask.cpus or 0),
        memory_bytes=ask.memory_bytes or 0,
        labels=tuple(sorted(ask.labels.items())),
    )


def cpus_needed(ask: ResourceAsk) -> int:
    """CPUs that ``ask`` takes on each of its nodes: only a run without GPUs reserves them, one a process at least."""
    return 0 if ask.gpus else max(ask.ranks // ask.nodes, math.ceil(ask.cpus or 1))


def slots(run: Run, ranks: Iterable[tuple[int, str]]) -> tuple[Slot, ...]:
    """The slots of a lease for ranks (index, node) of a run."""
    count: dict[str, int] = {}
    for _, node in ranks:
        count[node] = count.get(node, 0) + 1
    return tuple(Slot(node, many * run.gpus_per_rank // GPU, many * run.cpus_per_rank) for node, many in count.items())


def shape(run: Run) -> tuple[object, ...]:
    """GPUs and how they are spread, whatever properties the nodes must have."""
    return len(run.ranks), run.gpus_per_rank, run.cpus_per_rank > 0, run.nodes
