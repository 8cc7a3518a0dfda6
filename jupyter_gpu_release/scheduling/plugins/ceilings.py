"""Veto: nobody gets more than the maximum of a queue, or of a user in it."""

from __future__ import annotations

from ..decisions import Cause, OverMax, OverUserMax
from ..state import Job, State


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
