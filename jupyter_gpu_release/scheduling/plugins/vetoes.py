"""Reasons why a run may not start, or cannot."""

from __future__ import annotations

from collections.abc import Callable

from ..decisions import Away, Cause, NeverFits, NoCpus, NoRoom, NotYet, Unready
from ..nodes import Group
from ..placement import avoided, find_places, suiting
from ..state import Job, State
from ..workload import Run
from .limits import ceilings, over_limit, within_guarantee
from .node_filters import FILTERS, impossible

Veto = Callable[[State, Job, int], Cause | None]


def _type_limits(state: State, job: Job, gpus: int) -> Cause | None:
    """The limit by type of GPU, where each node that would do is of a type that has one in the way."""
    causes = [over_limit(state, job.run, state.type_of(group), gpus) for group in suiting(state, job.run)]
    return causes[0] if causes and all(causes) else None


VETOES: tuple[Veto, ...] = (ceilings, within_guarantee)


def veto(state: State, job: Job, ranks: int | None = None) -> Cause | None:
    """The first rule that forbids ``ranks`` more of the run (its next step)."""
    gpus = (job.step_size if ranks is None else ranks) * job.run.gpus_per_rank
    cause = next((cause for check in VETOES if (cause := check(state, job, gpus))), None)
    return _type_limits(state, job, gpus) if cause is None and state.by_type else cause


def cause(state: State, job: Job) -> Cause:
    """The reason why a run waits at the end of a pass."""
    own = state.for_all.get(job.run.run)
    rule = never(state, job) or veto(state, job) or own or _kept(state, job)
    return rule or _unready(state, job) or _shortage(state, job)


def never(state: State, job: Job) -> NeverFits | None:
    """The reason why no set of nodes that are up could take the run, were they empty."""
    known = state.nodes.never
    if job.kind.ask not in known:
        known[job.kind.ask] = _never(state, job)
    return known[job.kind.ask]


def _never(state: State, job: Job) -> NeverFits | None:
    run = job.run
    most = {group: _most(run, group) for group in suiting(state, run)}
    if run.nodes == "any" and sum(ranks * len(group.names) for group, ranks in most.items()) >= run.min_ranks:
        return None
    each = run.min_ranks if run.nodes == "any" else run.min_ranks // run.nodes
    if run.nodes != "any" and sum(len(group.names) for group, ranks in most.items() if ranks >= each) >= run.nodes:
        return None
    return NeverFits(_lack(state, run))


def _most(run: Run, group: Group) -> int:
    """Ranks that an empty node of the group takes."""
    node = group.sample
    by_gpus = run.ranks_in(node.gpus) if run.gpus_per_rank else run.min_ranks
    return min(by_gpus, node.cpus // run.cpus_per_rank) if run.cpus_per_rank else by_gpus


def _lack(state: State, run: Run) -> str:
    """Trouble of nodes that would do, or what those that are up do not offer."""
    if impossible(run, state.nodes) is None:
        down = [
            node for node in state.nodes if not node.schedulable and all(check(run, node) is None for check in FILTERS)
        ]
        reasons = dict.fromkeys(node.reason for node in down if node.reason)
        if reasons:
            return "; ".join(reasons)
    return impossible(run, [node for node in state.nodes if node.schedulable]) or "no node that fits is up"


def _kept(state: State, job: Job) -> NotYet | None:
    """The blocked run ahead that the free GPUs are kept for, where there is room."""
    head = next((head for head, _ in state.heads if head is not job), None)
    if head is None or any(other is job for other, _ in state.heads) or find_places(state, job, soon=False) is None:
        return None
    own = suiting(state, job.run)
    ahead = next((other.run for other, groups in state.heads if any(group in own for group in groups)), None)
    return NotYet() if ahead is None else NotYet(ahead.run, ahead.user)


def _unready(state: State, job: Job) -> Unready | None:
    """Tell if nothing but its environment is not there yet: no further node would help."""
    has_room = job.run.unready and find_places(state, job, soon=False, anywhere=True) is not None
    return Unready() if has_room else None


def _shortage(state: State, job: Job) -> Cause:
    run, nodes, groups = job.run, state.nodes, suiting(state, job.run)
    closed = {
        name: nodes.why_closed(run, name) for name in {**nodes.away, **nodes.aside} if nodes.group(name) in groups
    }
    away = [name for name, why in closed.items() if why]
    ready = sum(len(group.names) for group in groups) - len(away)
    if away and ready < (1 if run.nodes == "any" else run.nodes):
        return Away(closed[away[0]])
    if not run.gpus_per_rank:
        free = max((nodes.free_cpus[name] for group in groups for name in group.names), default=0)
        return NoCpus(run.cpus_per_rank, free) if run.cpus_per_rank > free else NotYet()
    free = sum(max(0, room) * len(places) for group in groups for room, places in group.buckets.items())
    if run.is_part:
        free += sum(sum(nodes.rooms(name, soon=False)) for name in nodes.shared if nodes.group(name) in groups)
    total = sum(group.sample.gpus * len(group.names) for group in groups)
    total -= sum(nodes.by_name[name].gpus for name in away)
    not_these = [name for name in avoided(state, run, groups) if nodes.group(name) in groups and name not in away]
    free -= sum(max(0, nodes.free[name]) for name in (*away, *not_these))
    total -= sum(nodes.by_name[name].gpus for name in not_these)
    return NoRoom(job.step_size, run.gpus_per_rank, free, total, is_choosy=bool(not_these))
