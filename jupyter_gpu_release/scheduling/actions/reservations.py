"""Reservations of the first blocked runs: when and where each will start at the latest, as far as ends are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..nodes import Group
from ..placement import choose, rooms_for
from ..state import Job, State


@dataclass(slots=True)
class Reservation:
    """Nodes kept for a run from a moment on."""

    run: str
    #: infinite: not known
    start_s: float
    #: what those who go on beyond ``start_s`` may still use of each of its nodes, in thousandths
    spare: dict[str, int]


def reserve(state: State, job: Job, groups: Sequence[Group], now_s: float) -> Reservation | None:
    """The earliest moment at which the run fits, by the expected ends of what runs, and its nodes then."""
    run, count = job.run, job.step_size
    rooms = rooms_for(state, run, groups, {}, soon=True)
    names = {name for group in groups for name in group.names}
    freed = {name: state.nodes.room(name, soon=True) for name in names}
    each = run.gpus_per_rank
    if not each:
        return None
    have = sum(rooms.values())
    for end_s, _, other in state.ends:
        touched = False
        for place in other.places:
            if place in names:
                before = freed[place] // each
                freed[place] += other.run.gpus_per_rank
                have += freed[place] // each - before
                touched = True
        if touched and have >= count:
            parts = choose(state, job, count, {name: room // each for name, room in freed.items() if room >= each})
            if parts:
                return Reservation(
                    run.run, max(end_s, now_s), {name: freed[name] - part * each for name, part in parts}
                )
    return _without_date(state, job, groups)


def _without_date(state: State, job: Job, groups: Sequence[Group]) -> Reservation | None:
    """Nobody knows when: the nodes that have most room now are kept from whoever is behind."""
    run, count = job.run, job.step_size
    parts = choose(
        state, job, count, {name: group.sample.gpus // run.gpus_per_rank for group in groups for name in group.names}
    )
    return Reservation(run.run, float("inf"), {name: 0 for name, _ in parts}) if parts else None
