"""Places for the ranks of one step: all of them or none, packed, and close together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .plugins.card_tiers import card_tiers
from .plugins.node_filters import FILTERS
from .plugins.pack import pack
from .state import Job, State
from .workload import Node, RankState, Run

#: (node's name, ranks that it takes)
Parts = list[tuple[str, int]]


def suits(run: Run, node: Node) -> bool:
    """Tell if a node, empty, could take a rank of the run."""
    return all(lack(run, node) is None for lack in FILTERS)


def find_places(state: State, job: Job, count: int, *, soon: bool) -> list[str] | None:
    """Nodes for the next ``count`` ranks; ``soon``: counting what those who yield give back."""
    run = job.run
    nodes = [node for node in state.nodes.values() if node.schedulable and suits(run, node)]
    rooms = {node.name: _ranks_on(state, run, node, soon=soon) for node in nodes}
    rooms = {name: room for name, room in rooms.items() if room}
    ordered = sorted(rooms, key=_score(state, run))
    if run.nodes == "any":
        parts = _anywhere(state, ordered, rooms, count)
    else:
        parts = _evenly(job, ordered, rooms, count, run.nodes)
    return [name for name, part in parts for _ in range(part)] if parts else None


def _ranks_on(state: State, run: Run, node: Node, *, soon: bool) -> int:
    """How many ranks a node takes now."""
    by_gpus = state.room(node.name, soon=soon) // run.gpus_per_rank if run.gpus_per_rank else len(run.ranks)
    by_cpus = state.free_cpus[node.name] // run.cpus_per_rank if run.cpus_per_rank else by_gpus
    return max(0, min(by_gpus, by_cpus))


def _score(state: State, run: Run) -> Callable[[str], tuple[float, tuple[float, float]]]:
    """Best first: the tier of the cards against the run's priority, then the fuller node."""
    return lambda name: (card_tiers(state.policy, run, state.nodes[name]), pack(state, run, name))


def _anywhere(state: State, ordered: Sequence[str], rooms: dict[str, int], count: int) -> Parts:
    """One node where one is enough, else nodes of one topology label, else any; few nodes rather than many."""
    one = next((name for name in ordered if rooms[name] >= count), None)
    if one is not None:
        return [(one, count)]
    groups: dict[str, list[str]] = {}
    for name in ordered:
        groups.setdefault(dict(state.nodes[name].labels).get("topology", ""), []).append(name)
    near = [names for label, names in groups.items() if label and sum(rooms[name] for name in names) >= count]
    best = min(near, key=lambda names: sum(rooms[name] for name in names), default=list(ordered))
    return _fill(best, rooms, count)


def _fill(names: Sequence[str], rooms: dict[str, int], count: int) -> Parts:
    parts: Parts = []
    for name in sorted(names, key=lambda name: -rooms[name]):
        left = count - sum(part for _, part in parts)
        tight = next((other for other in names if rooms[other] >= left and other not in dict(parts)), None)
        parts.append((tight, left) if tight is not None else (name, rooms[name]))
        if tight is not None:
            return parts
    return []


def _evenly(job: Job, ordered: Sequence[str], rooms: dict[str, int], count: int, nodes: int) -> Parts:
    """As many nodes as asked for, with equal parts; ranks that run already count."""
    each = len(job.run.ranks) // nodes
    there: dict[str, int] = {}
    for rank_state, place in zip(job.states, job.places, strict=True):
        if rank_state in (RankState.RUNNING, RankState.GRANTED, RankState.PROMISED):
            there[place] = there.get(place, 0) + 1
    parts: Parts = []
    for name in [*there, *(name for name in ordered if name not in there)][:]:
        left = count - sum(part for _, part in parts)
        part = min(rooms.get(name, 0), each - there.get(name, 0), left)
        if part == min(each - there.get(name, 0), left) and part and len(there | dict(parts) | {name: 1}) <= nodes:
            parts.append((name, part))
    return parts if sum(part for _, part in parts) == count else []
