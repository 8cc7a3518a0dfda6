"""Allocate: start in order whatever fits; what does not is left where it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..contest import Contest
from ..decisions import Start
from ..placement import find_places
from ..state import Job, State
from ..vetoes import veto
from ..workload import RankState


def allocate(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start]:
    """Start gangs whole, then the ranks of elastic runs above the least that they need, one by one."""
    contest = Contest(state, shares, [job for job in state.waiting() if job.step()], now_s)
    while (job := contest.pop()) is not None:
        start = start_step(state, job)
        if start is not None:
            yield start
            if job.step():
                contest.push(job)


def start_step(state: State, job: Job) -> Start | None:
    """Start the next ranks of a run, now or when those who yield have gone."""
    ranks = job.step()
    if veto(state, job, len(ranks)):
        return None
    for promised in (False, True):
        places = find_places(state, job, len(ranks), soon=promised)
        if places is not None:
            placed = RankState.PROMISED if promised else RankState.GRANTED
            for rank, node in zip(ranks, places, strict=True):
                state.place(job, rank, node, placed)
            return Start(job.run.run, tuple(zip(ranks, places, strict=True)), promised)
    return None
