"""Alternatives: the other asks that a run could be sent with, in the words of the options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...protocol.runs import ResourceAsk
from ..workload import GPU, Run


@dataclass(frozen=True, slots=True)
class Change:
    """Options that change an ask, and the run that it makes then."""

    words: str
    run: Run


def other_asks(
    ask: ResourceAsk, run: Run, *, gpu_types: Sequence[str] = (), elsewhere: Sequence[Run] = ()
) -> Iterator[Iterator[Change]]:
    """Changes of one kind each. ``gpu_types``: what one writes behind ``--gpu-type``; ``elsewhere``: the run as other
    queues would admit it.
    """
    if ask.gpus:
        yield _fewer_gpus(ask, run)
        yield _other_types(run, gpu_types)
    yield (Change(f"--queue {other.queue}", other) for other in elsewhere)


def _fewer_gpus(ask: ResourceAsk, run: Run) -> Iterator[Change]:
    """Half of the GPUs, a quarter, and so on; a gang has as many ranks fewer, on the same number of nodes."""
    gpus, ranks = ask.gpus // 2, ask.ranks // 2
    while gpus >= 1 and (ask.ranks == 1 or (ranks >= ask.nodes and ranks % ask.nodes == 0)):
        count = gpus if ask.ranks == 1 else ranks * (ask.gpus // ask.ranks)
        words = f"--gpus {count}" if ask.ranks == 1 else f"--gpus {count} --ranks {ranks}"
        yield Change(words, replace(run, gpus_per_rank=count * GPU // len(run.ranks)))
        gpus, ranks = gpus // 2, ranks // 2


def _other_types(run: Run, gpu_types: Sequence[str]) -> Iterator[Change]:
    own = run.needs.gpu_type.lower()
    for kind in gpu_types if own else ():
        if kind.lower() != own:
            yield Change(f"--gpu-type {kind}", replace(run, needs=replace(run.needs, gpu_type=kind)))
