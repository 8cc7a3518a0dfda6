"""Reservations of the first blocked runs: when and where each will start at the latest, as far as ends are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..nodes import Group
from ..placement import avoided, choose
from ..state import Job, State
from ..workload import GPU


@dataclass(slots=True)
class Reservation:
    """Nodes kept for a run from a moment on."""

    run: str
    start_s: float
    #: what those who go on beyond ``start_s`` may still use of each of its nodes, in thousandths
    spare: dict[str, int]


def reserve(
    state: State, job: Job, groups: Sequence[Group], now_s: float, *, whole: bool = False
) -> Reservation | None:
    """The earliest moment at which the run fits, by the expected ends of what runs, and its nodes then; ``whole``: with
    all of its ranks, and not only the next ones.
    """
    run, count = job.run, len(job.run.ranks) if whole else job.step_size
    not_these = avoided(state, run, groups)
    names = {name for group in groups for name in group.names if name not in not_these}
    freed = {name: state.nodes.room(name, soon=True) for name in names}
    each, left = run.claim, state.nodes.left_on_shared()
    if not each:
        return None
    have = sum(room // each for room in freed.values() if room > 0)
    for end_s, _, other in state.ends(now_s):
        touched = False
        for place, gpus in _given_back(state, other, left):
            if place in names:
                before = max(0, freed[place]) // each
                freed[place] += gpus
                have += max(0, freed[place]) // each - before
                touched = True
        if touched and have >= count:
            parts = choose(state, job, count, {name: room // each for name, room in freed.items() if room >= each})
            if parts:
                return Reservation(
                    run.run, max(end_s, now_s), {name: freed[name] - part * each for name, part in parts}
                )
    return _without_date(state, job, count, [node for group in groups for node in group.names if node in names], now_s)


def _given_back(state: State, job: Job, left: dict[tuple[str, str], int]) -> Iterator[tuple[str, int]]:
    """Nodes where whole GPUs are free once a run has ended; of a shared one it is the last. ``left`` is kept."""
    if not job.run.is_part:
        yield from ((place, job.run.gpus_per_rank) for place in job.places)
        return
    for on in state.nodes.parts_of(job.run.run, len(job.places)):
        left[on] -= job.run.gpus_per_rank
        if left[on] <= 0:
            yield on[0], GPU


def _without_date(state: State, job: Job, count: int, nodes: Sequence[str], now_s: float) -> Reservation | None:
    """Nobody knows when: the nodes that have most room now are kept from whoever is behind, from now on. None are where
    GPUs would be needed that may never be free again.
    """
    each, stuck = job.run.claim, state.nodes.stuck
    most = {name: (state.nodes.by_name[name].gpus - stuck.get(name, 0)) // each for name in nodes}
    names = sorted(most, key=lambda name: (-state.nodes.room(name, soon=True), state.nodes.place[name]))
    tried = 1
    while tried < 2 * len(names):
        parts = choose(state, job, count, {name: most[name] for name in names[:tried] if most[name]})
        if parts:
            return Reservation(job.run.run, now_s, {name: 0 for name, _ in parts})
        tried *= 2
    return None
