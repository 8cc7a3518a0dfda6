"""Fair shares: guarantees first, the rest by weight among siblings, filled by demand, in whole GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..workload import GPU
from .tree import UNLIMITED, QueueTree


@dataclass(frozen=True, slots=True)
class Claim:
    """A sibling's part in a division."""

    name: str
    demand: int
    guaranteed: int
    weight: float
    priority: int


def fair_shares(tree: QueueTree, demands: Mapping[str, int], total: int) -> dict[str, int]:
    """Share of each queue, in thousandths, when ``total`` GPUs are divided from the top of the tree downwards.

    ``demands`` holds what each queue uses and waits for, of parents the sum of their children.
    """
    shares: dict[str, int] = {}

    def descend(parent: str, available: int) -> None:
        names = tree.children.get(parent, [])
        for name, share in divide([_claim(tree, name, demands.get(name, 0)) for name in names], available).items():
            shares[name] = share
            descend(name, share)

    descend("", total)
    return shares


def _claim(tree: QueueTree, name: str, demand: int) -> Claim:
    queue = tree.queues[name]
    wanted = demand if queue.max is None else min(demand, queue.max)
    guaranteed = wanted if queue.guaranteed == UNLIMITED else min(wanted, queue.guaranteed)
    return Claim(name, wanted, guaranteed, max(queue.weight, 0.0), queue.priority)


def divide(claims: Sequence[Claim], available: int) -> dict[str, int]:
    """Divide GPUs among siblings. Guarantees may exceed what is available."""
    given = {claim.name: claim.guaranteed for claim in claims}
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        rest = available - sum(given.values())
        if rest <= 0:
            break
        _add_by_weight([claim for claim in claims if claim.priority == priority], given, rest)
    return given


def _add_by_weight(claims: Sequence[Claim], given: dict[str, int], rest: int) -> None:
    """Fill by weight; whoever has all that it wants leaves its part to the others."""
    hungry = [claim for claim in claims if claim.weight > 0 and claim.demand > given[claim.name]]
    while hungry and rest > 0:
        weights = sum(claim.weight for claim in hungry)
        full = [claim for claim in hungry if claim.demand - given[claim.name] <= rest * claim.weight / weights]
        if not full:
            _round({claim: rest * claim.weight / weights for claim in hungry}, given, rest)
            return
        rest -= sum(claim.demand - given[claim.name] for claim in full)
        given |= {claim.name: claim.demand for claim in full}
        hungry = [claim for claim in hungry if claim not in full]


def _round(parts: Mapping[Claim, float], given: dict[str, int], rest: int) -> None:
    """Give whole GPUs, the last ones by largest remainder."""
    left = rest - sum(int(part) // GPU * GPU for part in parts.values())
    for claim in sorted(parts, key=lambda claim: -(parts[claim] % GPU)):
        more = GPU if left >= GPU and parts[claim] % GPU else 0
        left -= more
        given[claim.name] = min(claim.demand, given[claim.name] + int(parts[claim]) // GPU * GPU + more)
