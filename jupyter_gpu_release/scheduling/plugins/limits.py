"""Limits: maxima of queues and users, and guarantees that runs which cannot be taken back stay within; by type, too."""

from __future__ import annotations

from collections.abc import Iterable

from ..decisions import Cause, OverGuarantee, OverMax, OverUserMax
from ..state import Job, State
from ..workload import Run


def ceilings(state: State, job: Job, gpus: int) -> Cause | None:
    """The ceiling that ``gpus`` more (thousandths) would break, if any."""
    run = job.run
    for name in state.tree.paths[run.queue]:
        account = state.accounts[name]
        if account.queue.max is not None and account.allocated + gpus > account.queue.max:
            return OverMax(name, account.queue.max)
        most = account.queue.max_gpus_per_user
        if most is not None and state.user_held.get((name, run.user), 0) + gpus > most:
            return OverUserMax(name, run.user, most)
    return None


def within_guarantee(state: State, job: Job, gpus: int) -> Cause | None:
    """The guarantee that ``gpus`` more (thousandths) would exceed, where the policy forbids that."""
    run = job.run
    if run.restartable or state.policy.non_restartable_over_guarantee:
        return None
    for name in state.tree.paths[run.queue]:
        account = state.accounts[name]
        if account.fixed + gpus > account.guaranteed:
            return OverGuarantee(name, account.queue.guaranteed)
    return None


def over_limit(state: State, run: Run, kind: str, gpus: int) -> Cause | None:
    """The limit of its queue, or of one above it, that ``gpus`` more (thousandths) of this type would exceed."""
    if not gpus:
        return None
    spares = run.restartable or state.policy.non_restartable_over_guarantee
    for name in state.tree.paths[run.queue]:
        account = state.by_type[kind].accounts[name]
        if account.queue.max is not None and account.allocated + gpus > account.queue.max:
            return OverMax(name, account.queue.max, kind)
        if not spares and account.queue.guaranteed_of and account.fixed + gpus > account.guaranteed:
            return OverGuarantee(name, account.queue.guaranteed, kind)
    return None


def permits(state: State, run: Run, places: Iterable[tuple[str, int]]) -> bool:
    """Tell if no limit by type keeps a run from GPUs (thousandths) on these nodes."""
    if not state.by_type:
        return True
    wanted: dict[str, int] = {}
    for node, gpus in places:
        kind = state.type_of(state.nodes.group(node))
        wanted[kind] = wanted.get(kind, 0) + gpus
    return all(over_limit(state, run, kind, gpus) is None for kind, gpus in wanted.items())
