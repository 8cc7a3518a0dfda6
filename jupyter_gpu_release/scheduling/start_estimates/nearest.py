"""The nearest ask that fits, for one that no empty cluster could grant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from msgspec import structs

from ...errors import ImpossibleAskError
from ...protocol.runs import ResourceAsk
from ..plugins.node_filters import impossible
from ..resource_requests import reshaped
from ..workload import GPU, Node, Run
from .alternatives import Change, anywhere, begun_with, with_gpus


def possible_ask(ask: ResourceAsk, run: Run, nodes: Sequence[Node], gpu_types: Sequence[str] = ()) -> ResourceAsk:
    """The ask as it will be placed: where no one node will ever do, ranks that need not stay on one are spread.

    ``run``: what it is for the policy. ``gpu_types``: types of the cluster as one writes them. Raises
    :class:`ImpossibleAskError` with the nearest that fits, unless the cluster could grant it.
    """
    reason = impossible(run, nodes)
    if reason is None:
        return ask
    if ask.may_spread and _fits(anywhere(ask, run), nodes):
        return structs.replace(ask, any_nodes=True)
    nearest = next((change.words for change in _nearer(ask, run, nodes, gpu_types) if _fits(change, nodes)), "")
    hint = f"the nearest that fits: {nearest}" if nearest else "ask for what the cluster has: `jupyter gpu status`"
    raise ImpossibleAskError(reason, hint=hint)


def _fits(change: Change, nodes: Sequence[Node]) -> bool:
    return impossible(change.run, nodes) is None


def _nearer(ask: ResourceAsk, run: Run, nodes: Sequence[Node], gpu_types: Sequence[str]) -> Iterator[Change]:
    """All GPUs, spread over more nodes or of another type; else as many as there can be."""
    if not ask.gpus:
        return
    for count in sorted(range(1, min(ask.ranks, len(nodes)) + 1), key=lambda count: abs(count - ask.nodes)):
        if ask.ranks % count == 0 and count != ask.nodes and not ask.any_nodes:
            yield Change(f"--nodes {count}", reshaped(run, structs.replace(ask, nodes=count)))
    if ask.ranks > 1 and not ask.any_nodes:
        yield anywhere(ask, run)
    for kind in gpu_types if ask.gpu_type else ():
        yield Change(f"--gpu-type {kind}", replace(run, needs=replace(run.needs, gpu_type=kind)))
    if ask.min_gpus is not None:
        yield from _smaller_begins(ask, run, ask.min_gpus, nodes)
        return
    yield _most(ask, run, nodes)
    for count in reversed(range(1, ask.nodes)):
        if ask.ranks % count == 0:
            change = _most(structs.replace(ask, nodes=count), run, nodes)
            yield Change(f"{change.words} --nodes {count}", change.run)
    yield from _smaller_ranks(ask, run, max((node.gpus for node in nodes), default=0) // GPU)


def _smaller_begins(ask: ResourceAsk, run: Run, least: int, nodes: Sequence[Node]) -> Iterator[Change]:
    """Begun with as many ranks as there can be; else with one that has fewer GPUs, as have the others."""
    each = int(ask.gpus) // ask.ranks
    largest = min(each, max((node.gpus for node in nodes), default=0) // GPU)
    for fewer in (each, *reversed(range(1, min(each, largest + 1)))):
        change = _begun_with_most(structs.replace(ask, gpus=fewer * ask.ranks), run, least // each, nodes)
        yield change if fewer == each else Change(f"--gpus {fewer * ask.ranks} {change.words}", change.run)


def _begun_with_most(ask: ResourceAsk, run: Run, least: int, nodes: Sequence[Node]) -> Change:
    each = int(ask.gpus) // ask.ranks
    return begun_with(ask, run, each * _largest(least, lambda ranks: _fits(begun_with(ask, run, ranks * each), nodes)))


def _smaller_ranks(ask: ResourceAsk, run: Run, most: int) -> Iterator[Change]:
    """As many ranks with fewer GPUs each, at most ``most``; at last one of each."""
    for each in reversed(range(1, min(int(ask.gpus) // ask.ranks, most + 1))):
        yield Change(f"--gpus {each * ask.ranks}", reshaped(run, structs.replace(ask, gpus=each * ask.ranks)))
    least = structs.replace(ask, gpus=1, ranks=1, nodes=1, any_nodes=False)
    yield Change("--gpus 1 --ranks 1 --nodes 1", reshaped(run, least))


def _most(ask: ResourceAsk, run: Run, nodes: Sequence[Node]) -> Change:
    """The largest part of it that fits."""
    step = 1 if ask.ranks == 1 else ask.nodes * (int(ask.gpus) // ask.ranks)
    return with_gpus(
        ask, run, step * _largest(int(ask.gpus) // step - 1, lambda n: _fits(with_gpus(ask, run, n * step), nodes))
    )


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` that fits, where all smaller ones do; 1 where none does."""
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
