"""The figures of a replay."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from .replay import Replayed
from .trace import Job

_Key = TypeVar("_Key", str, float)
#: below this a job's slowdown is not its own (bounded slowdown)
_SHORT_S = 10.0


def figures(replayed: Replayed) -> dict[str, object]:
    """Sum up a replay; the names are those of ``simulate --json``."""
    waits = replayed.waits_s()
    slowdowns = [_slowdown(job, wait) for job, wait in zip(replayed.jobs, waits, strict=True)]
    makespan_s = max(spans[-1][1] for spans in replayed.spans()) - replayed.jobs[0].submit_s
    shares = _shares(replayed.jobs, slowdowns)
    by_size = _grouped(replayed.jobs, waits, lambda job: job.gpus)
    return {
        **summary(waits),
        "longest_wait_s": round(max(waits), 3),
        "p99_wait_by_size_s": {str(size): found["p99_wait_s"] for size, found in by_size.items()},
        "by_size": {str(size): found for size, found in by_size.items()},
        "by_queue": _grouped(replayed.jobs, waits, owner),
        "bounded_slowdown": round(statistics.fmean(slowdowns), 4),
        "makespan_s": round(makespan_s, 3),
        "utilization": round(utilization(replayed), 4),
        "jain": round(jain(shares), 4),
        "max_min_share": round(min(shares) / max(shares), 4),
        "max_overtaken_s": round(max_overtaken_s(replayed), 3),
        "preempted": sum(len(attempts) - 1 for attempts in replayed.attempts.values()),
        "work_lost": round(replayed.work_lost(), 6),
        "held_over_used": round(replayed.held_over_used(), 4),
    }


def utilization(replayed: Replayed) -> float:
    """Part of the GPUs in use from the first submission to the last (afterwards only the longest jobs go on)."""
    since_s, until_s = replayed.jobs[0].submit_s, replayed.jobs[-1].submit_s
    used = sum(
        job.gpus * max(0.0, min(until_s, end_s) - start_s)
        for job, spans in zip(replayed.jobs, replayed.spans(), strict=True)
        for start_s, end_s in spans
    )
    return used / (replayed.gpus * (until_s - since_s)) if until_s > since_s else 0.0


def owner(job: Job) -> str:
    """The queue that a job belongs to, else its user."""
    return job.queue or job.user or "-"


def summary(waits: Sequence[float]) -> dict[str, float]:
    """Mean and quantiles of waits."""
    ordered = sorted(waits)
    quantiles = {f"p{p}_wait_s": round(quantile(ordered, p / 100), 3) for p in (50, 90, 99)}
    return {"jobs": len(ordered), "mean_wait_s": round(statistics.fmean(ordered), 3), **quantiles}


def quantile(ordered: Sequence[float], q: float) -> float:
    """Quantile of sorted values, between two of them by proportion."""
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _slowdown(job: Job, wait_s: float) -> float:
    return max(1.0, (wait_s + job.duration_s) / max(job.duration_s, _SHORT_S))


def _grouped(jobs: Sequence[Job], waits: Sequence[float], key: Callable[[Job], _Key]) -> dict[_Key, dict[str, float]]:
    groups: dict[_Key, list[float]] = {}
    for job, wait in zip(jobs, waits, strict=True):
        groups.setdefault(key(job), []).append(wait)
    return {name: summary(groups[name]) for name in sorted(groups)}


def _shares(jobs: Sequence[Job], slowdowns: Sequence[float]) -> list[float]:
    """How well each queue (or user) was served: 1 ÷ its mean slowdown."""
    groups: dict[str, list[float]] = {}
    for job, slowdown in zip(jobs, slowdowns, strict=True):
        groups.setdefault(owner(job), []).append(slowdown)
    return [1 / statistics.fmean(group) for group in groups.values()]


def jain(shares: Iterable[float]) -> float:
    """Jain's index: 1 when all are served alike, 1/n when one has everything."""
    values = list(shares)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def max_overtaken_s(replayed: Replayed) -> float:
    """The longest time that a job went on waiting after one submitted later had started."""
    longest = 0.0
    earliest = later = math.inf  # first start of all that are younger than the job; of one instant nobody is
    instant = math.inf
    for job, start_s in zip(reversed(replayed.jobs), reversed(replayed.starts_s), strict=True):
        if job.submit_s < instant:
            instant, later = job.submit_s, earliest
        longest = max(longest, start_s - later)
        earliest = min(earliest, start_s)
    return longest
