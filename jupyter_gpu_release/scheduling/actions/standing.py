"""Runs for which others may be asked to step aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..placement import suiting
from ..plugins.vetoes import never
from ..state import Job, State
from .contest import Contest
from .victims import may_be_taken


def next_ones(
    state: State, shares: Mapping[str, float], now_s: float, takes_part: Callable[[Job], bool] = lambda job: True
) -> Contest:
    """Waiting runs that could start if enough others stepped aside, and that would be next then.

    Where order is kept (``backfill``) those behind a blocked run are not: what is freed would go to that one.
    """
    heads = {job.run.run: job for job, _ in state.heads}
    claimed = {(job.run.gpus_per_rank > 0, group.number) for job, groups in state.heads for group in groups}

    def is_behind(job: Job) -> bool:
        wants = {(job.run.gpus_per_rank > 0, group.number) for group in suiting(state, job.run)}
        return job.run.run not in heads and bool(wants & claimed)

    def could(job: Job) -> bool:
        return takes_part(job) and never(state, job) is None and not is_behind(job)

    only_heads = all(is_behind(job) or job.run.run in heads for job in state.samples())
    return Contest(state, shares, now_s, could, [job.kind for job in heads.values()] if only_heads else None)


def movable(state: State, now_s: float) -> list[Job]:
    """Runs that may be asked to step aside."""
    return [job for job in state.takeable.values() if may_be_taken(state, job, now_s)]
