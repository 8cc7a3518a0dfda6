"""Alternatives: the other asks that a run could be sent with, in the words of the options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from ...protocol.runs import ResourceAsk
from ..resource_requests import reshaped
from ..workload import Run


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
        if ask.ranks > 1:
            yield _smaller_begins(ask, run)
        yield _other_types(run, gpu_types)
    if ask.ranks > 1 and not ask.any_nodes:
        yield iter([anywhere(ask, run)])
    yield (Change(f"--queue {other.queue}", other) for other in elsewhere)


def _fewer_gpus(ask: ResourceAsk, run: Run) -> Iterator[Change]:
    """Half of the GPUs, a quarter, and so on; a gang has as many ranks fewer, on the same number of nodes."""
    gpus, ranks = int(ask.gpus) // 2, ask.ranks // 2
    least_ranks = 1 if ask.min_gpus is None else 2  # --min-gpus is about ranks
    while gpus >= 1 and (ask.ranks == 1 or (ranks >= max(least_ranks, ask.nodes) and ranks % ask.nodes == 0)):
        yield with_gpus(ask, run, gpus if ask.ranks == 1 else ranks * (int(ask.gpus) // ask.ranks))
        gpus, ranks = gpus // 2, ranks // 2


def _smaller_begins(ask: ResourceAsk, run: Run) -> Iterator[Change]:
    """The same, but begun with half of the ranks that it has to begin with, a quarter, and so on."""
    each = int(ask.gpus) // ask.ranks
    ranks = (ask.min_gpus or int(ask.gpus)) // each // 2
    while ranks >= 1:
        yield begun_with(ask, run, ranks * each)
        ranks //= 2


def with_gpus(ask: ResourceAsk, run: Run, gpus: int) -> Change:
    """The same with another number of GPUs, and as many ranks as have as many each."""
    if ask.ranks == 1:
        return Change(f"--gpus {gpus}", reshaped(run, structs.replace(ask, gpus=gpus)))
    ranks, words = int(gpus * ask.ranks // ask.gpus), f"--gpus {gpus} --ranks {int(gpus * ask.ranks // ask.gpus)}"
    if ask.min_gpus is not None and ask.min_gpus > gpus:
        ask, words = structs.replace(ask, min_gpus=gpus), f"{words} --min-gpus {gpus}"
    if ranks == 1 and ask.any_nodes and not ask.may_spread:
        ask, words = structs.replace(ask, any_nodes=False), f"{words} --nodes 1"
    return Change(words, reshaped(run, structs.replace(ask, gpus=gpus, ranks=ranks)))


def begun_with(ask: ResourceAsk, run: Run, least: int) -> Change:
    """The same, but it may begin with so many GPUs."""
    words = f"--min-gpus {least}" if ask.any_nodes or ask.may_spread else f"--nodes any --min-gpus {least}"
    return Change(words, reshaped(run, structs.replace(ask, nodes=1, any_nodes=True, min_gpus=least)))


def anywhere(ask: ResourceAsk, run: Run) -> Change:
    """The same over whatever nodes have room, also unevenly."""
    return Change("--nodes any", reshaped(run, structs.replace(ask, nodes=1, any_nodes=True)))


def _other_types(run: Run, gpu_types: Sequence[str]) -> Iterator[Change]:
    own = run.needs.gpu_type.lower()
    for kind in gpu_types if own else ():
        if kind.lower() != own:
            yield Change(f"--gpu-type {kind}", replace(run, needs=replace(run.needs, gpu_type=kind)))
