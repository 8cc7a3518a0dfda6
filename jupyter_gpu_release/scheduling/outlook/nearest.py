"""The nearest ask that fits, for one that no empty cluster could grant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...errors import ImpossibleAskError
from ...protocol.runs import ResourceAsk
from ..plugins.impossible import impossible
from ..workload import GPU, Node, Rank, Run
from .alternatives import Change


def require_possible(ask: ResourceAsk, run: Run, nodes: Sequence[Node], gpu_types: Sequence[str] = ()) -> None:
    """Raise :class:`ImpossibleAskError` with the nearest that fits, unless the cluster could grant ``ask``.

    ``run``: what it is for the policy. ``gpu_types``: types of the cluster as one writes them.
    """
    reason = impossible(run, nodes)
    if reason is None:
        return
    nearest = next((change.words for change in _nearer(ask, run, nodes, gpu_types) if _fits(change, nodes)), "")
    hint = f"the nearest that fits: {nearest}" if nearest else "ask for what the cluster has: `jupyter gpu status`"
    raise ImpossibleAskError(reason, hint=hint)


def _fits(change: Change, nodes: Sequence[Node]) -> bool:
    return impossible(change.run, nodes) is None


def _nearer(ask: ResourceAsk, run: Run, nodes: Sequence[Node], gpu_types: Sequence[str]) -> Iterator[Change]:
    """All GPUs, spread over more nodes or of another type; else as many as there can be."""
    if not ask.gpus:
        return
    for count in range(2, min(ask.ranks, len(nodes)) + 1):
        if ask.ranks % count == 0 and count != ask.nodes:
            each = ask.gpus * GPU // count
            spread = replace(run, ranks=(Rank(),) * count, min_ranks=count, nodes=count, gpus_per_rank=each)
            yield Change(f"--nodes {count}", spread)
    for kind in gpu_types if ask.gpu_type else ():
        yield Change(f"--gpu-type {kind}", replace(run, needs=replace(run.needs, gpu_type=kind)))
    yield _most(ask, run, nodes)


def _most(ask: ResourceAsk, run: Run, nodes: Sequence[Node]) -> Change:
    """The largest part of it that fits, by halves of what is left to try."""
    step = 1 if ask.ranks == 1 else ask.nodes * (ask.gpus // ask.ranks)
    low, high = 1, max(1, ask.gpus // step - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(_part(ask, run, middle * step), nodes):
            low = middle
        else:
            high = middle - 1
    return _part(ask, run, low * step)


def _part(ask: ResourceAsk, run: Run, gpus: int) -> Change:
    words = f"--gpus {gpus}" if ask.ranks == 1 else f"--gpus {gpus} --ranks {gpus // (ask.gpus // ask.ranks)}"
    return Change(words, replace(run, gpus_per_rank=gpus * GPU // len(run.ranks)))
