"""Free GPUs by node, grouped so that a place is found without looking at every node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from .decisions import NeverFits, Slot
from .workload import GPU, Node, Run, in_thousandths


class Group:
    """Nodes that are alike in everything but what is free on them."""

    __slots__ = ("buckets", "names", "number", "sample")

    def __init__(self, number: int, sample: Node) -> None:
        self.number = number
        self.sample = sample
        self.names: list[str] = []
        #: free thousandths → places of such nodes in the cluster's order
        self.buckets: dict[int, set[int]] = {}


class SharedGpu:
    """A GPU that is shared: thousandths in use, those of them that preempted runs give back, and how many share it."""

    __slots__ = ("coming", "is_there", "parts", "used")

    def __init__(self, *, is_there: bool) -> None:
        self.used = self.coming = self.parts = 0
        #: False: it was opened for whoever starts when preempted runs have gone
        self.is_there = is_there

    def room(self, *, soon: bool) -> int:
        """Thousandths that are free; ``soon``: once preempted runs have gone."""
        if soon:
            return GPU - self.used + self.coming
        return GPU - self.used if self.is_there else 0


#: a rank that has a part: its run, and its number
PartHolder = tuple[str, int]


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
        #: GPUs of nodes that get nothing new, and why, in words
        self.aside: dict[str, Mapping[str, str]] = {}
        #: GPUs and CPUs that are nobody's to give: of other programs, or of nodes that are away
        self.outside: dict[str, tuple[int, int]] = {}
        #: GPUs that may never be free again, though nobody uses them
        self.stuck: dict[str, int] = {}
        #: GPUs that are shared just now, by node: whoever wants whole ones finds these taken, until they are empty
        self.shared: dict[str, dict[str, SharedGpu]] = {}
        #: rank → the shared GPUs that it has a part of, the newest place last
        self._parts: dict[PartHolder, list[tuple[str, str]]] = {}
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
                node.parts_per_gpu,
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

    # --- parts of GPUs

    def hold(self, run: Run, rank: int, name: str, sign: int, gpu: str = "") -> None:
        """Take what one rank has on a node, or give it back (-1). A part whose ``gpu`` is not known is put where Ray
        would: on the fullest that has room.
        """
        if not run.is_part:
            self.take(name, sign * run.gpus_per_rank, sign * run.cpus_per_rank)
            return
        holder = (run.run, rank)
        if sign > 0:
            is_there = gpu != "" or self.free[name] >= GPU
            gpu = gpu or self._fullest(run.gpus_per_rank, name)
            self.shared.setdefault(name, {}).setdefault(gpu, SharedGpu(is_there=is_there))
            self._parts.setdefault(holder, []).append((name, gpu))
        else:
            name, gpu = self._parts[holder].pop()
            if not self._parts[holder]:
                del self._parts[holder]
        self._change(name, gpu, used=sign * run.gpus_per_rank, parts=sign)

    def give_way(self, run: Run, rank: int, name: str, sign: int) -> None:
        """Expect back what one rank has on a node; -1 takes that back."""
        if run.is_part:
            name, gpu = self._parts[run.run, rank][-1]
            self._change(name, gpu, coming=sign * run.gpus_per_rank)
        else:
            self.expect(name, sign * run.gpus_per_rank)

    def gpu_of(self, run: str, rank: int = 0) -> str:
        """The shared GPU that a rank has a part of; empty: none."""
        return self._parts[run, rank][-1][1] if (run, rank) in self._parts else ""

    def left_on_shared(self) -> dict[tuple[str, str], int]:
        """(Node, shared GPU) → thousandths in use by those who stay."""
        return {(name, gpu): on.used - on.coming for name, shared in self.shared.items() for gpu, on in shared.items()}

    def parts_of(self, run: str, ranks: int) -> list[tuple[str, str]]:
        """(Node, shared GPU) of each rank that has a part."""
        return [self._parts[run, rank][-1] for rank in range(ranks) if (run, rank) in self._parts]

    def _fullest(self, part: int, name: str) -> str:
        shared, most, aside = self.shared.get(name, {}), self.by_name[name].parts_per_gpu, self.aside.get(name, {})
        for soon in (False, True):
            fits = [
                (on.room(soon=soon), -on.room(soon=not soon), gpu)
                for gpu, on in shared.items()
                if on.parts < most and gpu not in aside and on.room(soon=soon) >= part
            ]
            if fits and (not soon or self.free[name] < GPU):
                return min(fits)[2]
        return next(new for number in range(len(shared) + 1) if (new := f"new {number}") not in shared)

    def _change(self, name: str, gpu: str, *, used: int = 0, coming: int = 0, parts: int = 0) -> None:
        """Change what is in use of a GPU; whole ones of the node are fewer or more as it is shared, or not any more."""
        shared = self.shared[name]
        on = shared[gpu]
        taken, goes = on.used > 0, 0 < on.used == on.coming
        on.used, on.coming, on.parts = on.used + used, on.coming + coming, on.parts + parts
        if (on.used > 0) != taken:
            self.take(name, GPU if on.used else -GPU, 0)
        if (0 < on.used == on.coming) != goes:
            self.expect(name, -GPU if goes else GPU)
        if not on.parts:
            del shared[gpu]
        if not shared:
            del self.shared[name]

    def ranks(self, run: Run, name: str, *, soon: bool, limit: int | None = None) -> int:
        """Ranks of a run, which has GPUs, that have room on a node, of which it may use ``limit`` thousandths."""
        whole = self.room(name, soon=soon)
        whole = whole if limit is None else min(whole, limit)
        if not run.is_part:
            return max(0, whole) // run.gpus_per_rank
        if self.why_closed(run, name):
            return 0
        found = run.ranks_in(max(0, whole)) + sum(room // run.gpus_per_rank for room in self.rooms(name, soon=soon))
        return found if limit is None else min(found, run.ranks_in(max(0, limit)))

    def rooms(self, name: str, *, soon: bool) -> list[int]:
        """Thousandths that are free on each GPU of a node that is shared, and may be by one more. One that all give
        back counts as whole.
        """
        if name in self.away:
            return []
        most, aside = self.by_name[name].parts_per_gpu, self.aside.get(name, {})
        return [
            on.room(soon=soon)
            for gpu, on in self.shared.get(name, {}).items()
            if on.parts < most and gpu not in aside and not (soon and on.used == on.coming)
        ]

    def why_closed(self, run: Run, name: str) -> str:
        """The reason why a run gets nothing on a node: it is away, or a part might land on a GPU that is aside: the
        fullest that has room is Ray's choice.
        """
        shared = self.shared.get(name, {}) if run.is_part else {}
        risky = (
            f"{why}; new parts wait until the runs that share it have ended"
            for gpu, why in self.aside.get(name, {}).items()
            if gpu in shared and shared[gpu].room(soon=True) >= run.gpus_per_rank
        )
        return self.away.get(name, "") or next(risky, "")

    def lose(self, run: Run, slot: Slot, sign: int, gpu: str = "") -> None:
        """Count a slot of a run as nobody's, to be free again nobody knows when; -1 takes that back."""
        gpus = in_thousandths(slot.gpus)
        if gpus % GPU:
            self.hold(replace(run, run=f"{run.run} stuck on {gpu} of {slot.node}"), 0, slot.node, sign, gpu)
        else:
            self.take(slot.node, sign * gpus, sign * slot.cpus)
        self.stuck[slot.node] = self.stuck.get(slot.node, 0) + sign * -(-gpus // GPU) * GPU

    def set_outside(self, name: str, others: int, away: str = "", aside: Mapping[str, str] | None = None) -> None:
        """Note what other programs use on a node (thousandths), why it does not answer just now, if so, and its GPUs
        that get nothing new.
        """
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
        self.aside.pop(name, None)
        if aside:
            self.aside[name] = aside

    def room(self, name: str, *, soon: bool) -> int:
        """Thousandths that are free on a node; ``soon``: once preempted runs have gone."""
        return self.free[name] + self.coming[name] if soon else self.free[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.by_name.values())
