"""Overview of the queues: who has what, who waits for how much, what each is due, and what is odd about the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..reasons import gpus
from ..workload import GPU
from .fair_share import fair_shares
from .gpu_types import key, named_types, tree_of, type_among
from .queues_file import QueuesFile
from .tree import UNLIMITED, Queue, QueueTree


@dataclass(frozen=True, slots=True)
class Claimed:
    """GPUs (thousandths) that a run holds, or that ``waiting_runs`` of a user wait for in one queue."""

    queue: str
    user: str
    gpus: int
    waiting_runs: int = 0
    #: GPUs that are held, by the name of their type
    gpus_of: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """GPUs in thousandths: those held, and those that ``runs`` wait for."""

    used: int = 0
    waiting: int = 0
    runs: int = 0

    def add(self, claimed: Claimed) -> None:
        """Count it."""
        self.used += 0 if claimed.waiting_runs else claimed.gpus
        self.waiting += claimed.gpus if claimed.waiting_runs else 0
        self.runs += claimed.waiting_runs


@dataclass(slots=True)
class TypeTally:
    """GPUs (thousandths) of one type; a queue that is guaranteed none, or has no maximum of it, says so by None."""

    guaranteed: int | None
    max: int | None
    fair_share: int
    used: int = 0


@dataclass(slots=True)
class QueueOverview:
    """One queue, those below it counted in."""

    queue: Queue
    depth: int
    is_leaf: bool
    #: its part when every queue asks for all that it may have
    fair_share: int
    all: Tally = field(default_factory=Tally)
    users: dict[str, Tally] = field(default_factory=dict)
    #: the types that it names
    by_type: dict[str, TypeTally] = field(default_factory=dict)

    def add(self, claimed: Claimed) -> None:
        """Count what is claimed in this queue, or in one below it."""
        self.all.add(claimed)
        for gpu_type, count in claimed.gpus_of.items():
            kind = type_among(gpu_type, [key(name) for name in self.by_type])
            for name, tally in self.by_type.items():
                tally.used += count * (key(name) == kind)
        self.users.setdefault(claimed.user, Tally()).add(claimed)


def overview(
    file: QueuesFile, claims: Iterable[Claimed], total: int, total_of: Mapping[str, int] | None = None
) -> list[QueueOverview]:
    """Each queue behind the one above it; ``total``: GPUs of the cluster in thousandths, ``total_of``: by their type's
    name.
    """
    tree = file.tree
    shares = fair_shares(tree, dict.fromkeys(tree.queues, total), total)
    found = {
        name: QueueOverview(tree.queues[name], len(tree.paths[name]) - 1, tree.is_leaf(name), _due(tree, shares, name))
        for name in _downwards(tree, "")
    }
    _note_types(tree, found, total_of or {})
    for claimed in claims:
        for name in tree.paths[file.settle(claimed.queue, claimed.user)]:
            found[name].add(claimed)
    return list(found.values())


def _note_types(tree: QueueTree, found: Mapping[str, QueueOverview], total_of: Mapping[str, int]) -> None:
    kinds = named_types(tree.queues.values())
    totals = {kind: sum(count for name, count in total_of.items() if type_among(name, kinds) == kind) for kind in kinds}
    trees = {kind: tree_of(tree, kind) for kind in kinds}
    shares = {kind: fair_shares(trees[kind], dict.fromkeys(tree.queues, totals[kind]), totals[kind]) for kind in kinds}
    for name, queue in tree.queues.items():
        guaranteed, most = dict(queue.guaranteed_of), dict(queue.max_of)
        for word in (*guaranteed, *(word for word in most if word not in guaranteed)):
            due = _due(trees[key(word)], shares[key(word)], name)
            found[name].by_type[word] = TypeTally(guaranteed.get(word), most.get(word), due)


def _due(tree: QueueTree, shares: Mapping[str, int], name: str) -> int:
    most = tree.queues[name].max
    return shares[name] if most is None else min(shares[name], most)


def _downwards(tree: QueueTree, parent: str) -> Iterator[str]:
    for name in tree.children.get(parent, []):
        yield name
        yield from _downwards(tree, name)


def remarks(file: QueuesFile, total: int, total_of: Mapping[str, int] | None = None) -> list[str]:
    """Things that whoever runs the cluster should know; ``total``: its GPUs in thousandths (nodes come and go),
    ``total_of``: by their type's name.
    """
    found = []
    promised = _guaranteed(file.tree, "")
    if promised > total:
        found.append(f"the guarantees are {gpus(promised)} in all, and the cluster has {gpus(total)}")
    kinds = named_types(file.tree.queues.values())
    for kind in kinds if total_of is not None else ():
        there = sum(count for name, count in (total_of or {}).items() if type_among(name, kinds) == kind)
        wanted_of_it = _guaranteed(tree_of(file.tree, kind), "")
        if wanted_of_it > there:
            found.append(f"the guarantees are {gpus(wanted_of_it, kind)} in all, and the cluster has {there / GPU:g}")
    for name in _downwards(file.tree, ""):
        own, below = file.tree.queues[name].guaranteed, _guaranteed(file.tree, name)
        if own != UNLIMITED and below > own:
            found.append(f"queue {name} is guaranteed {gpus(own)}, and the queues in it {gpus(below)}")
    return found


def _guaranteed(tree: QueueTree, parent: str) -> int:
    return sum(max(0, tree.queues[name].guaranteed) for name in tree.children.get(parent, []))
