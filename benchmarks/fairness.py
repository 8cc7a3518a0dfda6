"""Fairness towards each size of job: a policy's waits against those of first in, first out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpu_release.simulation.metrics import quantile
from jupyter_gpu_release.simulation.replay import Replayed

#: sizes with fewer jobs are not judged by their 99th percentile
_FEW = 50


@dataclass(frozen=True)
class Fairness:
    """Waits of the jobs submitted in the second half (by count), divided by those under first in, first out."""

    mean: float
    longest: float
    #: mean of the gangs
    gangs: float
    #: 99th percentile by size, where there are enough jobs
    p99_by_size: dict[int, float]

    @property
    def worst_p99(self) -> float:
        """That of the size which is worst off."""
        return max(self.p99_by_size.values(), default=0.0)


def against(ours: Replayed, fifo: Replayed, gang: int) -> Fairness:
    """Compare two replays of the same jobs; ``gang``: GPUs from which on a job is a gang."""
    half = len(ours.jobs) // 2
    pairs = list(zip(ours.jobs, ours.waits_s(), fifo.waits_s(), strict=True))[half:]
    sizes = {job.gpus for job, _, _ in pairs}
    by_size = {size: [(mine, theirs) for job, mine, theirs in pairs if job.gpus == size] for size in sorted(sizes)}
    return Fairness(
        mean=_ratio(*_means((mine, theirs) for _, mine, theirs in pairs)),
        longest=_ratio(max(mine for _, mine, _ in pairs), max(theirs for _, _, theirs in pairs)),
        gangs=_ratio(*_means((mine, theirs) for job, mine, theirs in pairs if job.gpus >= gang)),
        p99_by_size={size: _ratio(*_p99(waits)) for size, waits in by_size.items() if len(waits) >= _FEW},
    )


def _means(waits: Iterable[tuple[float, float]]) -> tuple[float, float]:
    mine, theirs = zip(*waits, strict=True)
    return statistics.fmean(mine), statistics.fmean(theirs)


def _p99(waits: list[tuple[float, float]]) -> tuple[float, float]:
    mine, theirs = zip(*waits, strict=True)
    return quantile(sorted(mine), 0.99), quantile(sorted(theirs), 0.99)


def _ratio(mine: float, theirs: float) -> float:
    if theirs:
        return mine / theirs
    return 1.0 if not mine else float("inf")
