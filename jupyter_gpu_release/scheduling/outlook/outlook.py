"""Outlook of a waiting run: when it starts, at the earliest and at the latest, after whom, and what would be sooner."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ..state import ClusterSnapshot
from ..workload import GPU, Rank, Run
from .expectations import Case, Expectations
from .projection import ProjectedStart, project

#: a change that brings less than this is not worth a word
_LEAST_GAIN, _LEAST_GAIN_S = 0.1, 5.0
_MOST_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds until the start; None: nobody knows. ``after``: the run at whose end it is expected."""

    run: str
    starts_in_s: float | None = None
    at_least_s: float | None = None
    at_most_s: float | None = None
    after: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another ask, in the words of the options, and the seconds until it would start."""

    change: str
    starts_in_s: float


def outlooks(
    snapshot: ClusterSnapshot, expectations: Expectations, wanted: Collection[str] | None = None
) -> dict[str, Outlook]:
    """The outlook of each waiting run (of ``wanted`` only)."""
    courses = {case: project(snapshot, expectations, case, wanted) for case in Case}
    waiting = [run.run for run in snapshot.runs if run.started_at is None and (wanted is None or run.run in wanted)]
    return {run: _outlook(run, [courses[case].get(run) for case in Case], expectations.now_s) for run in waiting}


def _outlook(run: str, starts: Sequence[ProjectedStart | None], now_s: float) -> Outlook:
    early, expected, late = starts
    known = [start.at_s - now_s for start in starts if start is not None]
    at_least_s = None if early is None else min(known)
    at_most_s = None if late is None else max(known)
    if expected is None:
        return Outlook(run, None, at_least_s, at_most_s)
    return Outlook(run, expected.at_s - now_s, at_least_s, at_most_s, expected.after, expected.nodes)


def sooner(
    snapshot: ClusterSnapshot,
    expectations: Expectations,
    run: Run,
    *,
    gpu_types: Sequence[str] = (),
    queues: Sequence[str] = (),
) -> list[Alternative]:
    """Other asks with which a run would start sooner, the soonest first.

    The policy decides on each. ``gpu_types``: what one writes behind ``--gpu-type``; ``queues``: those that the user
    may use. A run that waits already would be sent anew, and counts as submitted now.
    """
    others = tuple(other for other in snapshot.runs if other.run != run.run)
    now_s = expectations.now_s

    def start_in_s(asked: Run) -> float | None:
        course = project(replace(snapshot, runs=(*others, asked)), expectations, wanted=(run.run,))
        return course[run.run].at_s - now_s if run.run in course else None

    as_it_is_s = start_in_s(run)
    if as_it_is_s == 0:
        return []
    found: list[Alternative] = []
    for family in _families(run, gpu_types, queues):
        best: Alternative | None = None
        for change, asked in family:
            in_s = start_in_s(replace(asked, submitted_at=now_s))
            if in_s is not None and _is_sooner(in_s, as_it_is_s) and (best is None or in_s < best.starts_in_s):
                best = Alternative(change, in_s)
        if best is not None:
            found.append(best)
    return sorted(found, key=lambda each: each.starts_in_s)[:_MOST_ALTERNATIVES]


def _is_sooner(in_s: float, as_it_is_s: float | None) -> bool:
    return as_it_is_s is None or in_s <= as_it_is_s - max(_LEAST_GAIN_S, _LEAST_GAIN * as_it_is_s)


Change = tuple[str, Run]


def _families(run: Run, gpu_types: Sequence[str], queues: Sequence[str]) -> Iterator[Iterator[Change]]:
    """Changes of one kind each; of a kind the best is told."""
    if run.gpus_per_rank:
        yield _fewer_gpus(run)
        yield _other_types(run, gpu_types)
        yield _any_nodes(run)
    yield ((f"--queue {queue}", replace(run, queue=queue)) for queue in queues if queue != run.queue)


def _fewer_gpus(run: Run) -> Iterator[Change]:
    """Half of the GPUs, a quarter, and so on: the most that starts soonest comes first."""
    ranks, each = len(run.ranks), run.gpus_per_rank // GPU
    if ranks == 1:
        while (each := each // 2) >= 1:
            yield f"--gpus {each}", replace(run, gpus_per_rank=each * GPU)
        return
    step = 1 if run.nodes == "any" else run.nodes
    while (ranks := ranks // 2) >= step and ranks % step == 0:
        fewer = replace(run, ranks=(Rank(),) * ranks, min_ranks=min(run.min_ranks, ranks))
        yield f"--gpus {ranks * each} --ranks {ranks}", fewer


def _other_types(run: Run, gpu_types: Sequence[str]) -> Iterator[Change]:
    own = run.needs.gpu_type
    if own:
        yield from (
            (f"--gpu-type {kind}", replace(run, needs=replace(run.needs, gpu_type=kind)))
            for kind in gpu_types
            if kind.lower() != own.lower()
        )


def _any_nodes(run: Run) -> Iterator[Change]:
    if run.nodes != "any" and len(run.ranks) > 1:
        yield "--nodes any", replace(run, nodes="any")
