"""Places for the ranks of one step: all of them or none, packed, and close together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from .nodes import Group
from .plugins.limits import over_limit
from .plugins.node_filters import FILTERS, impossible
from .plugins.node_scores import gpu_tiers, pack
from .state import Job, State
from .workload import GPU, Node, RankState, Run

#: (node's name, ranks that it takes)
Parts = list[tuple[str, int]]
#: nodes of which less may be used than is free, in thousandths
Limits = Mapping[str, int]


def suits(run: Run, node: Node) -> bool:
    """Tell if a node, empty, could take a rank of the run."""
    return node.schedulable and all(lack(run, node) is None for lack in FILTERS)


def suiting(state: State, run: Run) -> list[Group]:
    """Groups of nodes that could take a rank of the run, were they empty."""
    key = (run.needs, run.gpus_per_rank, run.cpus_per_rank, state.nodes.lasts_s(run))
    found = state.nodes.suited.get(key)
    if found is None:
        found = [group for group in state.nodes.groups if suits(run, group.sample)]
        state.nodes.suited[key] = found
    return found


def permitted(state: State, run: Run, ranks: int, groups: Sequence[Group]) -> Sequence[Group]:
    """Those of the groups where the limits by type of GPU allow so many ranks more."""
    if not state.by_type:
        return groups
    gpus = ranks * run.gpus_per_rank
    return [group for group in groups if over_limit(state, run, state.type_of(group), gpus) is None]


def one_type(state: State, job: Job) -> str | None:
    """The type by which shares are looked at for a run: that of all nodes that would do."""
    if not state.by_type:
        return None
    types = {state.type_of(group) for group in suiting(state, job.run)}
    return next(iter(types)) if len(types) == 1 else None


def find_places(
    state: State,
    job: Job,
    *,
    soon: bool,
    groups: Sequence[Group] | None = None,
    limits: Limits | None = None,
    anywhere: bool = False,
) -> list[str] | None:
    """Nodes for the ranks of the run's next step.

    ``soon``: counting what preempted runs give back; ``anywhere``: also on nodes that it does not take.
    """
    groups, count = suiting(state, job.run) if groups is None else groups, job.step_size
    if state.by_type:
        groups = permitted(state, job.run, count, groups)
    if not anywhere and (job.run.avoid or job.run.unready):
        limits = {**(limits or {}), **dict.fromkeys(avoided(state, job.run, groups), 0)}
    if _is_plain(job):
        one = _one_node(state, job.run, count, groups, limits or {}, soon=soon)
        if one is not None or job.run.nodes == 1 or not _may_fit(state, job.run, count, groups, soon=soon):
            return None if one is None else [one] * count
    parts = _parts(state, job, count, rooms_for(state, job.run, groups, limits or {}, soon=soon))
    return [name for name, part in parts for _ in range(part)] if parts else None


def avoided(state: State, run: Run, groups: Iterable[Group]) -> Collection[str]:
    """Nodes that a run does not take: those that lack its environment, and those that it is to avoid, where others that
    are up could take it.
    """
    if not (run.avoid or run.unready):
        return ()
    apart = {*run.avoid, *run.unready}
    names = (name for group in groups for name in group.names)
    others = [name for name in names if name not in apart and name not in state.nodes.away]
    is_last = impossible(run, [state.nodes.by_name[name] for name in others]) is not None
    return [name for name in (run.unready if is_last else apart) if name in state.nodes.by_name]


def _is_plain(job: Job) -> bool:
    """The groups' lists by what is free are enough to find one node."""
    run = job.run
    together = run.nodes == "any" or (run.nodes == 1 and not job.held)
    return together and run.gpus_per_rank >= GPU and not run.cpus_per_rank


def _one_node(state: State, run: Run, count: int, groups: Iterable[Group], limits: Limits, *, soon: bool) -> str | None:
    """The best node that takes all ranks: by what is free, apart from nodes of which more or less may be used."""
    wanted, nodes = count * run.gpus_per_rank, state.nodes
    apart = {nodes.place[name] for name in (*limits, *nodes.awaiting)}
    found: list[tuple[float, tuple[float, float], int]] = []
    for group in groups:
        tier = gpu_tiers(state.policy, run, group.sample)
        for free in sorted(free for free in group.buckets if free >= wanted):
            places = group.buckets[free] - apart if apart else group.buckets[free]
            if places:
                found.append((tier, (free, -free), min(places)))
                break
        for place in apart:
            name = nodes.names[place]
            if nodes.group(name) is group and _room(state, name, limits, soon=soon) >= wanted:
                found.append((tier, pack(state, run, name), place))
    return nodes.names[min(found)[2]] if found else None


def _room(state: State, name: str, limits: Limits, *, soon: bool) -> int:
    room = state.nodes.room(name, soon=soon)
    return min(room, limits[name]) if name in limits else room


def _may_fit(state: State, run: Run, count: int, groups: Iterable[Group], *, soon: bool) -> bool:
    each = run.gpus_per_rank
    ranks = sum(free // each * len(places) for group in groups for free, places in group.buckets.items() if free > 0)
    if soon:
        ranks += sum(-(-state.nodes.coming[name] // each) for name in state.nodes.awaiting)
    return ranks >= count


def rooms_for(state: State, run: Run, groups: Iterable[Group], limits: Limits, *, soon: bool) -> dict[str, int]:
    """How many ranks each node takes now; nodes without room are left out."""
    rooms: dict[str, int] = {}
    for group in groups:
        for name in group.names:
            by_gpus = len(run.ranks)
            if run.gpus_per_rank:
                by_gpus = state.nodes.ranks(run, name, soon=soon, limit=limits.get(name))
            ranks = min(by_gpus, state.nodes.free_cpus[name] // run.cpus_per_rank) if run.cpus_per_rank else by_gpus
            if ranks > 0:
                rooms[name] = ranks
    return rooms


def _parts(state: State, job: Job, count: int, rooms: dict[str, int]) -> Parts:
    return choose(state, job, count, rooms) if sum(rooms.values()) >= count else []


def choose(state: State, job: Job, count: int, rooms: dict[str, int]) -> Parts:
    """Nodes for ``count`` ranks of a run among those with room; empty when they are not enough."""
    run = job.run

    def score(name: str) -> tuple[float, tuple[float, float], int]:
        node = state.nodes.by_name[name]
        return gpu_tiers(state.policy, run, node), pack(state, run, name), state.nodes.place[name]

    ordered = sorted(rooms, key=score)
    if run.nodes == "any":
        return _anywhere(state, ordered, rooms, count)
    return _evenly(job, ordered, rooms, count, run.nodes)


def _anywhere(state: State, ordered: Sequence[str], rooms: dict[str, int], count: int) -> Parts:
    """One node where one is enough, else nodes of one topology label, else any; few nodes rather than many."""
    one = next((name for name in ordered if rooms[name] >= count), None)
    if one is not None:
        return [(one, count)]
    groups: dict[str, list[str]] = {}
    for name in ordered:
        groups.setdefault(dict(state.nodes.by_name[name].labels).get("topology", ""), []).append(name)
    near = [names for label, names in groups.items() if label and sum(rooms[name] for name in names) >= count]
    best = min(near, key=lambda names: sum(rooms[name] for name in names), default=list(ordered))
    return _fill(best, rooms, count)


def _fill(names: Sequence[str], rooms: dict[str, int], count: int) -> Parts:
    """The largest rooms first, the last part where it fits best."""
    parts: dict[str, int] = {}
    for name in sorted(names, key=lambda name: -rooms[name]):
        left = count - sum(parts.values())
        tight = next((other for other in names if rooms[other] >= left and other not in parts), None)
        if tight is not None:
            return [*parts.items(), (tight, left)]
        parts[name] = rooms[name]
    return []


def _evenly(job: Job, ordered: Sequence[str], rooms: dict[str, int], count: int, nodes: int) -> Parts:
    """As many nodes as asked for, with equal parts; ranks that run already count."""
    each = len(job.run.ranks) // nodes
    there: dict[str, int] = {}
    for rank_state, place in zip(job.states, job.places, strict=True):
        if rank_state in (RankState.RUNNING, RankState.GRANTED, RankState.PROMISED):
            there[place] = there.get(place, 0) + 1
    parts: dict[str, int] = {}
    for name in [*there, *(name for name in ordered if name not in there)]:
        part = min(each - there.get(name, 0), count - sum(parts.values()))
        if part and rooms.get(name, 0) >= part and len(there | parts | {name: 1}) <= nodes:
            parts[name] = part
    return list(parts.items()) if sum(parts.values()) == count else []
