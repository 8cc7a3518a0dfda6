"""Asks of requests as runs of the policy, and places for them as slots of a lease."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..protocol.runs import ResourceAsk
from .decisions import Slot
from .workload import Needs, Rank, Run, gpu_number, in_thousandths


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
    restartable: bool = False,
) -> Run:
    """A waiting run. What it has on one node is one rank of the policy's: it is all there or not at all. Where it may
    be spread unevenly, or start with fewer, each of its own ranks is one.
    """
    parts = _parts(ask)
    return Run(
        run=run,
        queue=queue,
        ranks=(Rank(),) * parts,
        gpus_per_rank=in_thousandths(ask.gpus) // parts,
        min_ranks=least_parts(ask),
        priority=priority,
        restartable=restartable,
        user=user,
        submitted_at=submitted_at,
        campaign=campaign,
        limit_s=limit_s,
        nodes="any" if ask.any_nodes else ask.nodes,
        needs=needs(ask),
        cpus_per_rank=cpus_needed(ask),
    )


def reshaped(run: Run, ask: ResourceAsk) -> Run:
    """The same run with other numbers of GPUs, ranks or nodes."""
    parts = _parts(ask)
    return replace(
        run,
        ranks=(Rank(),) * parts,
        gpus_per_rank=in_thousandths(ask.gpus) // parts,
        min_ranks=least_parts(ask),
        nodes="any" if ask.any_nodes else ask.nodes,
        cpus_per_rank=cpus_needed(ask),
    )


def needs(ask: ResourceAsk) -> Needs:
    """The properties of nodes that were asked for."""
    return Needs(
        gpu_type=ask.gpu_type or "",
        min_gpu_memory_bytes=max(ask.min_gpu_memory_bytes or 0, _least_bytes(ask)),
        cpus=math.ceil(ask.cpus or 0),
        memory_bytes=ask.memory_bytes or 0,
        labels=tuple(sorted(ask.labels.items())),
    )


def _least_bytes(ask: ResourceAsk) -> int:
    """Memory of a GPU of which the part has as much as was asked for."""
    return int(ask.gpu_memory_bytes / ask.gpus) if ask.gpu_memory_bytes and ask.gpus else 0


def cpus_needed(ask: ResourceAsk) -> int:
    """CPUs of each part of an ask: only a run without GPUs reserves them, one a process at least."""
    return 0 if ask.gpus else max(ask.ranks // _parts(ask), math.ceil(ask.cpus or 1))


def ranks_on(ask: ResourceAsk, slot: Slot) -> int:
    """Processes of a run on a slot of its lease."""
    if not ask.any_nodes:
        return ask.ranks // ask.nodes
    return int(slot.gpus * ask.ranks // ask.gpus) if ask.gpus else slot.cpus // cpus_needed(ask)


def parts_on(run: Run, slot: Slot) -> int:
    """Ranks of a run on a slot of its lease."""
    if run.gpus_per_rank:
        return in_thousandths(slot.gpus) // run.gpus_per_rank
    return max(1, slot.cpus // run.cpus_per_rank) if run.cpus_per_rank else 1


def _parts(ask: ResourceAsk) -> int:
    return ask.ranks if ask.any_nodes else ask.nodes


def least_parts(ask: ResourceAsk) -> int:
    """Parts of an ask that have to start together."""
    least = ask.gpus if ask.min_gpus is None else min(ask.min_gpus, ask.gpus)
    return max(1, int(least * _parts(ask) // ask.gpus)) if ask.gpus else _parts(ask)


def slots(run: Run, ranks: Iterable[tuple[int, str]]) -> tuple[Slot, ...]:
    """The slots of a lease for ranks (index, node) of a run."""
    count: dict[str, int] = {}
    for _, node in ranks:
        count[node] = count.get(node, 0) + 1
    return tuple(
        Slot(node, gpu_number(many * run.gpus_per_rank), many * run.cpus_per_rank) for node, many in count.items()
    )


def is_shaped_like(run: Run, lease: Sequence[Slot]) -> bool:
    """Tell if slots are what a run asks for, whatever properties the nodes must have."""
    parts = [in_thousandths(slot.gpus) for slot in lease]
    if run.nodes == "any":
        return 0 < sum(parts) == run.gpus and not any(gpus % run.gpus_per_rank for gpus in parts)
    cpus = run.cpus_per_rank > 0
    return parts == [run.gpus_per_rank] * len(run.ranks) and all((slot.cpus > 0) == cpus for slot in lease)
