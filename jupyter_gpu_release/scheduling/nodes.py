"""Free GPUs by node, grouped so that a place is found without looking at every node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from .decisions import NeverFits
from .workload import Node, Run


class Group:
    """Nodes that are alike in everything but what is free on them."""

    __slots__ = ("buckets", "names", "number", "sample")

    def __init__(self, number: int, sample: Node) -> None:
        self.number = number
        self.sample = sample
        self.names: list[str] = []
        #: free thousandths → places of such nodes in the cluster's order
        self.buckets: dict[int, set[int]] = {}


class Nodes:
    """The nodes of a cluster and what is free on them; GPUs in thousandths."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.by_name = {node.name: node for node in nodes}
        self.names = list(self.by_name)
        self.place = {name: place for place, name in enumerate(self.names)}
        self.free = {name: node.gpus for name, node in self.by_name.items()}
        self.free_cpus = {name: node.cpus for name, node in self.by_name.items()}
        #: GPUs that preempted runs give back
        self.coming = dict.fromkeys(self.names, 0)
        #: nodes where some are coming
        self.awaiting: set[str] = set()
        self.total = sum(self.free.values())
        #: some end at a time that is known
        self.have_ends = any(node.left_s < math.inf for node in self.by_name.values())
        #: nodes that do not answer just now, and why, in words: they have no room, and whoever needs them waits
        self.away: dict[str, str] = {}
        #: GPUs and CPUs that are nobody's to give: of other programs, or of nodes that are away
        self.outside: dict[str, tuple[int, int]] = {}
        #: GPUs that may never be free again, though nobody uses them
        self.stuck: dict[str, int] = {}
        self.groups: list[Group] = []
        self._group: dict[str, Group] = {}
        self._make_groups()
        #: what suits which needs, kept by the placement
        self.suited: dict[object, list[Group]] = {}
        #: why what is asked for fits no nodes, kept by the vetoes
        self.never: dict[object, NeverFits | None] = {}

    def _make_groups(self) -> None:
        alike: dict[object, Group] = {}
        for name, node in self.by_name.items():
            key = (
                node.gpus,
                node.gpu_type,
                node.gpu_memory_bytes,
                node.cpus,
                node.memory_bytes,
                node.labels,
                node.schedulable,
                node.knows_attempts,
                node.left_s,
            )
            group = alike.get(key)
            if group is None:
                group = alike[key] = Group(len(alike), node)
                self.groups.append(group)
            group.names.append(name)
            group.buckets.setdefault(node.gpus, set()).add(self.place[name])
            self._group[name] = group

    def group(self, name: str) -> Group:
        """The group of a node."""
        return self._group[name]

    def lasts_s(self, run: Run) -> float:
        """Time that a run needs, where nodes differ by that."""
        return run.lasts_s if self.have_ends else 0.0

    def take(self, name: str, gpus: int, cpus: int) -> None:
        """Take GPUs and CPUs from a node; negative numbers give them back."""
        self.free_cpus[name] -= cpus
        if gpus:
            place, buckets, was = self.place[name], self._group[name].buckets, self.free[name]
            bucket = buckets[was]
            bucket.remove(place)
            if not bucket:
                del buckets[was]
            self.free[name] = was - gpus
            buckets.setdefault(was - gpus, set()).add(place)

    def expect(self, name: str, gpus: int) -> None:
        """Expect GPUs back on a node from a preempted run; a negative number takes that back."""
        self.coming[name] += gpus
        if self.coming[name]:
            self.awaiting.add(name)
        else:
            self.awaiting.discard(name)

    def lose(self, name: str, gpus: int, cpus: int) -> None:
        """Count GPUs (thousandths) and CPUs as nobody's, to be free again nobody knows when; negative numbers take that
        back.
        """
        self.take(name, gpus, cpus)
        self.stuck[name] = self.stuck.get(name, 0) + gpus

    def set_outside(self, name: str, others: int, away: str = "") -> None:
        """Note what other programs use on a node (thousandths), and why it does not answer just now, if so."""
        node = self.by_name[name]
        taken = (node.gpus, node.cpus) if away else (others, 0)
        before = self.outside.get(name, (0, 0))
        if taken != before:
            self.take(name, taken[0] - before[0], taken[1] - before[1])
            self.outside[name] = taken
        if away:
            self.away[name] = away
        else:
            self.away.pop(name, None)

    def room(self, name: str, *, soon: bool) -> int:
        """Thousandths that are free on a node; ``soon``: once preempted runs have gone."""
        return self.free[name] + self.coming[name] if soon else self.free[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.by_name.values())
