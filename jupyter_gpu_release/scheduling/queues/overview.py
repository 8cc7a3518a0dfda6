"""Overview of the queues: who has what, who waits for how much, what each is due, and what is odd about the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..reasons import gpus
from ..workload import GPU
from .fair_share import fair_shares
from .queues_file import QueuesFile
from .tree import UNLIMITED, Queue, QueueTree

#: actions that decide who steps aside; nothing carries that out yet
_NOT_CARRIED_OUT = ("consolidate", "reclaim", "preempt")


@dataclass(frozen=True, slots=True)
class Claimed:
    """GPUs (thousandths) that a run holds or waits for."""

    queue: str
    user: str
    gpus: int
    waits: bool = False


@dataclass(slots=True)
class Tally:
    """GPUs in thousandths: those held, and those that ``runs`` wait for."""

    used: int = 0
    waiting: int = 0
    runs: int = 0

    def add(self, claimed: Claimed) -> None:
        """Count a run."""
        self.used += 0 if claimed.waits else claimed.gpus
        self.waiting += claimed.gpus if claimed.waits else 0
        self.runs += claimed.waits


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

    def add(self, claimed: Claimed) -> None:
        """Count a run of this queue, or of one below it."""
        self.all.add(claimed)
        self.users.setdefault(claimed.user, Tally()).add(claimed)


def overview(file: QueuesFile, claims: Iterable[Claimed], total: int) -> list[QueueOverview]:
    """Each queue behind the one above it; ``total``: GPUs of the cluster in thousandths."""
    tree = file.tree
    shares = fair_shares(tree, dict.fromkeys(tree.queues, total), total)
    found = {
        name: QueueOverview(tree.queues[name], len(tree.paths[name]) - 1, tree.is_leaf(name), _due(tree, shares, name))
        for name in _downwards(tree, "")
    }
    for claimed in claims:
        for name in tree.paths[file.settle(claimed.queue, claimed.user)]:
            found[name].add(claimed)
    return list(found.values())


def _due(tree: QueueTree, shares: Mapping[str, int], name: str) -> int:
    most = tree.queues[name].max
    return shares[name] if most is None else min(shares[name], most)


def _downwards(tree: QueueTree, parent: str) -> Iterator[str]:
    for name in tree.children.get(parent, []):
        yield name
        yield from _downwards(tree, name)


def remarks(file: QueuesFile, total: int) -> list[str]:
    """Things that whoever runs the cluster should know; ``total``: its GPUs in thousandths (nodes come and go)."""
    found = []
    promised = _guaranteed(file.tree, "")
    if promised > total:
        found.append(f"the guarantees are {gpus(promised)} in all, and the cluster has {gpus(total)}")
    for name in _downwards(file.tree, ""):
        own, below = file.tree.queues[name].guaranteed, _guaranteed(file.tree, name)
        if own != UNLIMITED and below > own:
            found.append(f"queue {name} is guaranteed {gpus(own)}, and the queues in it {gpus(below)}")
    wanted = [action for action in file.policy.actions if action in _NOT_CARRIED_OUT]
    if wanted and len(file.tree.queues) > 1:
        found.append(f"nobody is asked to step aside yet: {', '.join(wanted)} are not carried out by this version")
    return found


def _guaranteed(tree: QueueTree, parent: str) -> int:
    return sum(max(0, tree.queues[name].guaranteed) for name in tree.children.get(parent, []))


def as_gpus(thousandths: int) -> float:
    """``2000 → 2``, ``500 → 0.5``: as documents count them."""
    count = thousandths / GPU
    return int(count) if count.is_integer() else count
