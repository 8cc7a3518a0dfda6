"""Backfill: behind a blocked run start those that do not delay it (EASY, with a reservation for each pool of nodes)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..decisions import Start
from ..placement import find_places, suiting
from ..plugins.vetoes import veto
from ..state import Job, State
from .allocate import start_step
from .contest import Contest
from .elastic import pays_to_grow, waits_for_all
from .reservations import Reservation, reserve


def backfill(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start]:
    """Serve whoever ends before a reservation begins, or uses what it leaves."""
    fitting = {job.kind.ask for job in state.samples() if fits_now(state, job)} if state.heads else set()
    if not fitting:
        return
    found = [reserve(state, job, groups, now_s, whole=job.run.run in state.for_all) for job, groups in state.heads]
    reservations = [reservation for reservation in found if reservation is not None]
    heads = {job.run.run for job, _ in state.heads}
    kinds = [kind for ask in fitting for kind in state.asks.get(ask, {}).values()]
    contest = Contest(state, shares, now_s, _could(state, reservations, now_s), kinds)
    while (job := contest.pop()) is not None:
        late = _late(state, reservations, job, now_s)
        start = None
        if job.run.run in heads:
            contest.again()
        elif (job.held and not pays_to_grow(state, job, now_s)) or (
            job.run.is_elastic and waits_for_all(state, job, suiting(state, job.run), now_s)
        ):
            continue
        elif veto(state, job) is None:
            start = start_step(state, job, limits=_limits(late), action="backfill")
            if start is None and not job.held:
                contest.drop(_is_like(state, job, late, reservations, now_s))
        if start is not None:
            _use(late, start, job.run.claim)
            yield start
            contest.again(grow=True)


def fits_now(state: State, job: Job) -> bool:
    """Tell if there is room for a run, whoever is ahead."""
    return find_places(state, job, soon=bool(state.nodes.awaiting)) is not None


def _could(state: State, reservations: Sequence[Reservation], now_s: float) -> Callable[[Job], bool]:
    """Tell of the first of a kind if there is room for it at all. CPUs have no reservations: what a run without GPUs
    waits for is kept from all that are behind it.
    """
    known: dict[tuple[object, ...], bool] = {}
    kept = {group.number for head, groups in state.heads if not head.run.gpus_per_rank for group in groups}

    def could(job: Job) -> bool:
        if kept and not job.run.gpus_per_rank and any(group.number in kept for group in suiting(state, job.run)):
            return False
        late = _late(state, reservations, job, now_s)
        key = (job.kind.ask, job.held, *(reservation.run for reservation in late))
        if key not in known:
            known[key] = find_places(state, job, soon=bool(state.nodes.awaiting), limits=_limits(late)) is not None
        return known[key]

    return could


def _is_like(
    state: State, job: Job, late: Sequence[Reservation], reservations: Sequence[Reservation], now_s: float
) -> Callable[[Job], bool]:
    """Tell of others if what failed for ``job`` fails for them."""
    ask = job.kind.ask
    return lambda other: not other.held and other.kind.ask == ask and _late(state, reservations, other, now_s) == late


def _late(state: State, reservations: Sequence[Reservation], job: Job, now_s: float) -> list[Reservation]:
    """The reservations that begin before the run would have ended."""
    end_s = _end_s(state, job, now_s)
    return [reservation for reservation in reservations if end_s > reservation.start_s]


def _end_s(state: State, job: Job, now_s: float) -> float:
    """The latest end that is to be expected of a run that starts now."""
    length = state.run_times.expected_s(job.run, now_s)
    return float("inf") if length is None else now_s + length


def _limits(late: Sequence[Reservation]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for reservation in late:
        for name, spare in reservation.spare.items():
            limits[name] = min(spare, limits.get(name, spare))
    return limits


def _use(late: Sequence[Reservation], start: Start, claim: int) -> None:
    for reservation in late:
        for _, node in start.ranks:
            if node in reservation.spare:
                reservation.spare[node] -= claim
