"""Notebook sessions on nodes that are borrowed, in the simulator, against an interactive job for each.

Closed-loop, as in :mod:`benchmarks.notebook_sessions`. Walltimes are left out on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from jupyter_gpu_release.scheduling.pool import Pool
from jupyter_gpu_release.simulation.borrowed import Borrowed, Site, cluster_of_pool
from jupyter_gpu_release.simulation.replay import replay
from jupyter_gpu_release.simulation.trace import Job

from ..notebook_sessions import Session


@dataclass(frozen=True)
class Played:
    """GPU-seconds of nodes, divided by those of cells; the mean wait is over all cells."""

    held_over_used: float
    mean_wait_s: float


def hold_per_session(sessions: Sequence[Session], site: Site) -> Played:
    """Each session has an interactive job from before its first cell until after its last."""
    used_s = [sum(cell.duration_s for cell in session.cells) * session.gpus for session in sessions]
    thinks_s = [sum(cell.think_s for cell in session.cells[:-1]) * session.gpus for session in sessions]
    boots_s = [site.boot_s * session.gpus for session in sessions]
    waits_s = (site.queue_s + site.boot_s) * len(sessions)
    cells = sum(len(session.cells) for session in sessions)
    return Played(math.fsum([*used_s, *thinks_s, *boots_s]) / math.fsum(used_s), waits_s / cells)


def borrow(sessions: Sequence[Session], pool: Pool, site: Site) -> Played:
    """All sessions share the pool's nodes."""
    left = {str(number): iter(session.cells) for number, session in enumerate(sessions)}
    thinks_s: dict[str, float] = {}

    def next_cell(name: str, gpus: float, now_s: float) -> Job | None:
        cell = next(left[name], None)
        if cell is None:
            return None
        submit_s, thinks_s[name] = now_s + thinks_s.get(name, 0.0), cell.think_s
        return Job(0, submit_s, cell.duration_s, gpus, user=name)

    first = [next_cell(str(number), session.gpus, session.start_s) for number, session in enumerate(sessions)]
    replayed = replay(
        [job for job in first if job is not None],
        cluster_of_pool(pool),
        partial(Borrowed, pool=pool, site=site),
        following=lambda job, now_s: next_cell(job.user, job.gpus, now_s),
    )
    waits_s = replayed.waits_s()
    return Played(replayed.held_over_used(), math.fsum(waits_s) / len(waits_s))
