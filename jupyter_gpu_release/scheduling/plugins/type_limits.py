"""Limits by type of GPU: what a queue may have of it at most, and what of it runs may use that cannot be taken back."""

from __future__ import annotations

from collections.abc import Iterable

from ..decisions import Cause, OverGuarantee, OverMax
from ..state import State
from ..workload import Run


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
