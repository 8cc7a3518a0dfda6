"""Reasons why a run may not start, or cannot."""

from __future__ import annotations

from collections.abc import Callable

from .decisions import Cause, NeverFits, NoRoom, NotYet
from .placement import suits
from .plugins.ceilings import ceilings
from .plugins.guarantee import within_guarantee
from .plugins.node_filters import FILTERS
from .state import Job, State
from .workload import GPU

Veto = Callable[[State, Job, int], Cause | None]

VETOES: tuple[Veto, ...] = (ceilings, within_guarantee)


def veto(state: State, job: Job, ranks: int) -> Cause | None:
    """The first rule that forbids ``ranks`` more of the run."""
    return next((cause for check in VETOES if (cause := check(state, job, ranks * job.run.gpus_per_rank))), None)


def cause(state: State, job: Job) -> Cause:
    """The reason why a run waits at the end of a pass."""
    ranks = len(job.step())
    return never(state, job) or veto(state, job, ranks) or _shortage(state, job, ranks)


def never(state: State, job: Job) -> NeverFits | None:
    """The reason why no set of nodes that are up could take the run, were they empty."""
    run = job.run
    up = [node for node in state.nodes.values() if node.schedulable]
    fitting = [node for node in up if suits(run, node)]
    most = [node.gpus // run.gpus_per_rank if run.gpus_per_rank else run.min_ranks for node in fitting]
    if run.nodes == "any" and sum(most) >= run.min_ranks:
        return None
    if run.nodes != "any" and sum(ranks >= run.min_ranks // run.nodes for ranks in most) >= run.nodes:
        return None
    if fitting or not up:
        return NeverFits(_too_many(job, sum(node.gpus for node in up)))
    lacks = dict.fromkeys(lack for node in up for check in FILTERS if (lack := check(run, node)))
    return NeverFits(f"asks for {' and '.join(lacks)}, which no node that is up offers")


def _too_many(job: Job, total: int) -> str:
    run = job.run
    needed = f"{run.min_ranks * run.gpus_per_rank / GPU:g} GPUs"
    if run.nodes != "any":
        needed += f" on {run.nodes} node{'s' if run.nodes > 1 else ''}"
    return f"asks for {needed}, and the nodes that are up and fit do not have them ({total / GPU:g} GPUs in all)"


def _shortage(state: State, job: Job, ranks: int) -> Cause:
    fitting = [node for node in state.nodes.values() if node.schedulable and suits(job.run, node)]
    free = sum(max(0, state.free[node.name]) for node in fitting)
    total = sum(node.gpus for node in fitting)
    return NoRoom(ranks, job.run.gpus_per_rank, free, total) if job.run.gpus_per_rank else NotYet()
