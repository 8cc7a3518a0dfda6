"""Reasons why a run may not start, or cannot."""

from __future__ import annotations

from collections.abc import Callable

from ..decisions import Cause, NeverFits, NoRoom, NotYet
from ..nodes import Group
from ..placement import find_places, suiting
from ..state import Job, State
from ..workload import GPU, Run
from .ceilings import ceilings
from .guarantee import within_guarantee
from .node_filters import FILTERS

Veto = Callable[[State, Job, int], Cause | None]

VETOES: tuple[Veto, ...] = (ceilings, within_guarantee)


def veto(state: State, job: Job, ranks: int | None = None) -> Cause | None:
    """The first rule that forbids ``ranks`` more of the run (its next step)."""
    gpus = (job.step_size if ranks is None else ranks) * job.run.gpus_per_rank
    return next((cause for check in VETOES if (cause := check(state, job, gpus))), None)


def cause(state: State, job: Job) -> Cause:
    """The reason why a run waits at the end of a pass."""
    return never(state, job) or veto(state, job) or _kept(state, job) or _shortage(state, job)


def never(state: State, job: Job) -> NeverFits | None:
    """The reason why no set of nodes that are up could take the run, were they empty."""
    known = state.nodes.never
    if job.kind.ask not in known:
        known[job.kind.ask] = _never(state, job)
    return known[job.kind.ask]


def _never(state: State, job: Job) -> NeverFits | None:
    run = job.run
    groups = suiting(state, run)
    most = {group: _most(run, group) for group in groups}
    if run.nodes == "any" and sum(ranks * len(group.names) for group, ranks in most.items()) >= run.min_ranks:
        return None
    each = run.min_ranks if run.nodes == "any" else run.min_ranks // run.nodes
    if run.nodes != "any" and sum(len(group.names) for group, ranks in most.items() if ranks >= each) >= run.nodes:
        return None
    return _lack(state, job, is_suited=bool(groups))


def _most(run: Run, group: Group) -> int:
    """Ranks that an empty node of the group takes."""
    node = group.sample
    by_gpus = node.gpus // run.gpus_per_rank if run.gpus_per_rank else run.min_ranks
    return min(by_gpus, node.cpus // run.cpus_per_rank) if run.cpus_per_rank else by_gpus


def _lack(state: State, job: Job, *, is_suited: bool) -> NeverFits:
    run = job.run
    up = [node for node in state.nodes if node.schedulable]
    if is_suited or not up:
        return NeverFits(_too_many(job, sum(node.gpus for node in up)))
    lacks = dict.fromkeys(lack for node in up for check in FILTERS if (lack := check(run, node)))
    return NeverFits(f"asks for {' and '.join(lacks)}, which no node that is up offers")


def _too_many(job: Job, total: int) -> str:
    run = job.run
    needed = f"{run.min_ranks * run.gpus_per_rank / GPU:g} GPUs"
    if run.nodes != "any":
        needed += f" on {run.nodes} node{'s' if run.nodes > 1 else ''}"
    return f"asks for {needed}, and the nodes that are up and fit do not have them ({total / GPU:g} GPUs in all)"


def _kept(state: State, job: Job) -> NotYet | None:
    """The blocked run ahead that the free GPUs are kept for, where there is room."""
    head = next((head for head, _ in state.heads if head is not job), None)
    if head is None or any(other is job for other, _ in state.heads) or find_places(state, job, soon=False) is None:
        return None
    own = suiting(state, job.run)
    return NotYet(next((other.run.run for other, groups in state.heads if any(g in own for g in groups)), ""))


def _shortage(state: State, job: Job) -> Cause:
    if not job.run.gpus_per_rank:
        return NotYet()
    groups = suiting(state, job.run)
    free = sum(max(0, room) * len(places) for group in groups for room, places in group.buckets.items())
    total = sum(group.sample.gpus * len(group.names) for group in groups)
    return NoRoom(job.step_size, job.run.gpus_per_rank, free, total)
