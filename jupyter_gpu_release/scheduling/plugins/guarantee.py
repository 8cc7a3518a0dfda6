"""Veto: runs that cannot be taken back stay within the guarantee of their queue and of each above it."""

from __future__ import annotations

from ..decisions import Cause, OverGuarantee
from ..state import Job, State


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
