"""Search for runs to preempt so that another can start: as few as possible, and moved where they fit elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...settings.built_in import BUILT_IN
from ..decisions import Preempt, Start
from ..nodes import Group
from ..placement import choose, find_places, permitted, rooms_for, suiting
from ..plugins.limits import permits
from ..plugins.vetoes import never, veto
from ..state import Job, State
from ..workload import RankState, Run
from .contest import Contest

#: runs of this priority and above are never taken
_NEVER_TAKEN: int = BUILT_IN["never_preempted_priority"].default


@dataclass(frozen=True, slots=True)
class Unit:
    """Ranks that are taken at once: one that an elastic run can do without, or all of a run."""

    job: Job
    ranks: tuple[int, ...]


#: the unit to take next among some runs, given what was taken so far
Next = Callable[[Sequence[Job]], Unit | None]
#: units tried in order, before only nodes are looked at where little is missing; and runs on these
_MOST_TRIED, _MOST_NEAR = 24, 32


def may_be_taken(state: State, job: Job, now_s: float) -> bool:
    """Only restartable runs, not within ``min_runtime``, and not what this pass has touched."""
    run = job.run
    if not run.restartable or run.priority >= _NEVER_TAKEN or RankState.RUNNING not in job.states:
        return False
    if RankState.GRANTED in job.states or RankState.PROMISED in job.states:
        return False
    least = state.tree.min_runtimes_s[run.queue]
    return not least or job.started_at is None or now_s - job.started_at >= least


def unit(job: Job) -> Unit:
    """The next part of a run that would be preempted."""
    running = [index for index, state in enumerate(job.states) if state is RankState.RUNNING]
    return Unit(job, (running[-1],) if job.surplus > 0 else tuple(running))


def order(job: Job, now_s: float) -> tuple[float, ...]:
    """Sort key of victims in a queue: the lowest priority, then ranks that can be spared, then the least work lost,
    then the youngest.
    """
    return job.run.priority, float(job.surplus <= 0), lost_work(job, now_s), -job.run.submitted_at, -job.ordinal


def lost_work(job: Job, now_s: float) -> float:
    """GPU-seconds (thousandths) that are undone when the next part of a run is taken."""
    if job.run.saved_at is None or job.surplus > 0:
        return 0.0
    return max(0.0, now_s - job.run.saved_at) * job.held * job.run.gpus_per_rank


def best_unit(jobs: Iterable[Job], now_s: float) -> Unit | None:
    """The first victim among runs of one queue."""
    left = [job for job in jobs if RankState.RUNNING in job.states]
    return unit(min(left, key=lambda job: order(job, now_s))) if left else None


@dataclass(frozen=True)
class Terms:
    """Terms on which room is made: what must hold with the run placed, if everything that is taken must go on
    elsewhere, and the nodes where the run may be placed (None: all that suit).
    """

    accept: Callable[[], bool] = lambda: True
    all_move: bool = False
    groups: Sequence[Group] | None = None


def make_room(
    state: State, job: Job, others: Sequence[Job], following: Next, action: str, terms: Terms = Terms()
) -> list[Start | Preempt]:
    """Take units until the next ranks of ``job`` fit; spare what is not needed, move what fits elsewhere.

    Nothing is changed when it leads nowhere. Where there are many, only those on nodes where little is missing are
    looked at to the end.
    """
    found = _search(state, job, others, following, action, terms)
    if not found and len(others) > _MOST_TRIED:
        found = _search(state, job, _near(state, job, others), following, action, terms)
    return found


def _near(state: State, job: Job, others: Sequence[Job]) -> list[Job]:
    """Runs on the nodes where the least has to be freed for the ranks that have to start together."""
    nodes = {name for group in suiting(state, job.run) for name in group.names}
    on: dict[str, list[Job]] = {}
    for other in others:
        for name in {place for place in other.places if place in nodes}:
            on.setdefault(name, []).append(other)
    wanted = job.step_size * job.run.gpus_per_rank
    near: dict[str, Job] = {}
    for name in sorted(on, key=lambda name: (max(0, wanted - state.nodes.room(name, soon=True)), name)):
        near.update({other.run.run: other for other in on[name]})
        if len(near) >= _MOST_NEAR:
            break
    return list(near.values())


def _search(
    state: State, job: Job, others: Sequence[Job], following: Next, action: str, terms: Terms
) -> list[Start | Preempt]:
    mark = state.mark()
    taken: list[Unit] = []
    while len(taken) < max(_MOST_TRIED, _MOST_NEAR) and (victim := following(others)) is not None:
        _evict(state, victim)
        taken.append(victim)
        if _works(state, job, taken, terms):
            return _finish(state, job, _needed(state, job, taken, mark, terms), mark, action, terms)
    state.undo(mark)
    return []


def _works(state: State, job: Job, taken: list[Unit], terms: Terms) -> bool:
    """Try it, and undo the try."""
    mark = state.mark()
    fits = _start(state, job, terms) is not None and terms.accept() and (not terms.all_move or _move(state, taken))
    state.undo(mark)
    return fits


def _needed(state: State, job: Job, taken: list[Unit], mark: int, terms: Terms) -> list[Unit]:
    """The units without those that are not needed; the most deserving ones are spared first."""
    needed = taken
    for spared in reversed(taken):
        rest = [unit for unit in needed if unit is not spared]
        state.undo(mark)
        if not rest or not _is_consistent(rest):
            continue
        for unit in rest:
            _evict(state, unit)
        if _works(state, job, rest, terms):
            needed = rest
    return needed


def _is_consistent(units: list[Unit]) -> bool:
    """Tell of units that are not taken yet if each run would keep its least ranks, or be taken as a whole."""
    taken: dict[str, int] = {}
    for unit in units:
        taken[unit.job.run.run] = taken.get(unit.job.run.run, 0) + len(unit.ranks)
    return all(
        taken[unit.job.run.run] in range(unit.job.surplus + 1) or taken[unit.job.run.run] >= unit.job.held
        for unit in units
    )


def _evict(state: State, unit: Unit) -> None:
    for rank in unit.ranks:
        state.evict(unit.job, rank)


def _start(state: State, job: Job, terms: Terms) -> Start | None:
    places = None if veto(state, job) else find_places(state, job, soon=True, groups=terms.groups)
    if places is None:
        return None
    ranks = job.step()
    for rank, node in zip(ranks, places, strict=True):
        state.place(job, rank, node, RankState.PROMISED)
    return Start(job.run.run, tuple(zip(ranks, places, strict=True)), promised=True)


def _move(state: State, taken: list[Unit]) -> bool:
    """Put back what was taken: where it was if there is room after all, else elsewhere. Tells if all found a place."""
    jobs = list({unit.job.run.run: unit.job for unit in taken}.values())
    for job in sorted(jobs, key=_claim_to_stay, reverse=True):
        _settle(state, job, sorted(rank for unit in taken if unit.job is job for rank in unit.ranks))
    return all(unit.job.states[rank] is not RankState.YIELDING for unit in taken for rank in unit.ranks)


def _claim_to_stay(job: Job) -> tuple[float, ...]:
    return job.run.priority, float(job.surplus <= 0), -job.run.submitted_at, -job.ordinal


def _settle(state: State, job: Job, ranks: list[int]) -> None:
    """Let what can stay where it is, and place the others anew; else all anew; a run without its least leaves whole."""
    mark = state.mark()
    _stay(state, job, ranks)
    _resettle(state, job, [rank for rank in ranks if job.states[rank] is RankState.YIELDING])
    if job.held < job.run.min_ranks:
        state.undo(mark)
        _resettle(state, job, ranks)
    if job.held < job.run.min_ranks:
        state.undo(mark)


def _stay(state: State, job: Job, ranks: list[int]) -> None:
    for rank in ranks:
        node, gpus = job.places[rank], job.run.gpus_per_rank
        if (
            (not gpus or state.nodes.ranks(job.run, node, soon=True) > 0)
            and not veto(state, job, 1)
            and permits(state, job.run, [(node, gpus)])
        ):
            state.spare(job, rank)


def _resettle(state: State, job: Job, ranks: list[int]) -> None:
    """Place ranks anew: first as many as the run needs together, then one by one."""
    while (count := max(1, job.run.min_ranks - job.held)) <= len(ranks):
        rooms = rooms_for(state, job.run, permitted(state, job.run, count, suiting(state, job.run)), {}, soon=True)
        parts = [] if veto(state, job, count) else choose(state, job, count, rooms)
        if not parts:
            break
        for rank, node in zip(ranks, [name for name, part in parts for _ in range(part)], strict=False):
            state.place(job, rank, node, RankState.PROMISED)
        ranks = ranks[count:]


def _finish(state: State, job: Job, taken: list[Unit], mark: int, action: str, terms: Terms) -> list[Start | Preempt]:
    state.undo(mark)
    for unit in taken:
        _evict(state, unit)
    start = _start(state, job, terms)
    assert start is not None, "what worked on trial works"
    _move(state, taken)
    preempts = list(_preempts(taken, job.run, action))
    if not preempts:
        # it fits as it is: whatever keeps it from starting, to preempt others is no help
        state.undo(mark)
        return []
    return [*preempts, Start(start.run, start.ranks, promised=True, action=action)]


def _preempts(taken: list[Unit], beneficiary: Run, action: str) -> Iterator[Preempt]:
    ranks: dict[str, list[int]] = {}
    jobs = {unit.job.run.run: unit.job for unit in taken}
    for unit in taken:
        ranks.setdefault(unit.job.run.run, []).extend(unit.ranks)
    for name, indexes in ranks.items():
        job = jobs[name]
        gone = sorted(index for index in indexes if job.states[index] is not RankState.RUNNING)
        moves = tuple((index, job.places[index]) for index in gone if job.states[index] is RankState.PROMISED)
        if gone:
            yield Preempt(name, tuple(gone), beneficiary.run, action, moves, beneficiary.user)


def next_ones(
    state: State, shares: Mapping[str, float], now_s: float, takes_part: Callable[[Job], bool] = lambda job: True
) -> Contest:
    """Waiting runs that could start if enough others were preempted, and that would be next then.

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
    """Runs that may be preempted."""
    return [job for job in state.takeable.values() if may_be_taken(state, job, now_s)]
