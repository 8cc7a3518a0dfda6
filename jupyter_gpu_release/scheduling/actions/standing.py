"""Runs for which others may be asked to step aside."""

from __future__ import annotations

from collections.abc import Callable

from ..placement import suiting
from ..plugins.vetoes import never
from ..state import Job, State
from .victims import may_be_taken


def could_start(state: State) -> Callable[[Job], bool]:
    """Tell of a waiting run if it could start when enough others stepped aside, and would be next then.

    Where order is kept (``backfill``) those behind a blocked run are not: what is freed would go to that one.
    """
    heads = {job.run.run for job, _ in state.heads}
    claimed = {(job.run.gpus_per_rank > 0, group.number) for job, groups in state.heads for group in groups}

    def could(job: Job) -> bool:
        if never(state, job) is not None:
            return False
        wants = {(job.run.gpus_per_rank > 0, group.number) for group in suiting(state, job.run)}
        return job.run.run in heads or not wants & claimed

    return could


def movable(state: State, now_s: float) -> list[Job]:
    """Runs that may be asked to step aside."""
    return [job for job in state.takeable.values() if may_be_taken(state, job, now_s)]
