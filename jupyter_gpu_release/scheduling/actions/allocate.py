"""Allocate: start in order whatever fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..decisions import OverMax, OverUserMax, Start
from ..nodes import Group
from ..placement import Limits, find_places, permitted, suiting
from ..plugins.limits import permits
from ..plugins.vetoes import never, veto
from ..state import Job, State
from ..workload import RankState
from .contest import Contest
from .elastic import pays_to_grow, waits_for_all


def allocate(state: State, shares: Mapping[str, float], now_s: float) -> Iterator[Start]:
    """Start gangs whole, then the ranks of elastic runs above the least that they need, one by one.

    Promises of earlier passes come first. With ``backfill`` among the actions, those behind a run that is blocked leave
    the nodes alone that would do for it. A run that nothing which is up could take holds up nobody.
    """
    yield from _keep_promises(state)
    contest = Contest(state, shares, now_s)
    keeps_order = "backfill" in state.policy.actions
    claims, failed = Claims(state), set[tuple[object, ...]]()
    while (job := contest.pop()) is not None:
        groups = claims.left_to(job)
        if not groups or (job.held and not pays_to_grow(state, job, now_s)):
            continue
        if state.by_type:
            groups = list(permitted(state, job.run, job.step_size, groups)) or groups
        if why := veto(state, job):
            state.blocked[job.run.run] = job, groups
            if isinstance(why, OverMax | OverUserMax) and not why.gpu_type:
                contest.refuse(job, others=isinstance(why, OverMax) and not state.has_kept)
            continue
        is_patient = keeps_order and job.run.is_elastic and waits_for_all(state, job, groups, now_s)
        start = None if is_patient else start_step(state, job, groups)
        if start is not None:
            yield start
            contest.again(grow=True)
        elif keeps_order and job.surplus < 0 and never(state, job) is None:
            state.heads.append((job, groups))
            state.blocked[job.run.run] = job, groups
            claims.add(job, groups)
            if not any(claims.left_to(other) for other in state.samples()):
                return
            contest.drop(lambda other: not claims.left_to(other))
        elif not job.held:
            failed.add(job.kind.ask)
            if not keeps_order and all(other.kind.ask in failed for other in state.samples()):
                return
            contest.drop(asks_as(job))


def _keep_promises(state: State) -> Iterator[Start]:
    """Start first what others were preempted for, on the nodes that it was promised."""
    for name, ranks in state.promises.items():
        job = state.jobs[name]
        if len(ranks) < job.step_size or veto(state, job, len(ranks)):
            continue
        if not permits(state, job.run, [(node, job.run.gpus_per_rank) for node in ranks.values()]):
            continue
        if _take(state, job, ranks, soon=False):
            yield Start(name, tuple(ranks.items()))
        elif state.nodes.awaiting:
            # those who are preempted are not gone yet; it was told so already
            _take(state, job, ranks, soon=True)


def _take(state: State, job: Job, ranks: Mapping[int, str], *, soon: bool) -> bool:
    mark = state.mark()
    for rank, node in ranks.items():
        if node not in state.nodes.by_name or not _has_room(state, job, node, soon=soon):
            state.undo(mark)
            return False
        state.place(job, rank, node, RankState.PROMISED if soon else RankState.GRANTED)
    return True


def _has_room(state: State, job: Job, node: str, *, soon: bool) -> bool:
    return not job.run.gpus_per_rank or state.nodes.ranks(job.run, node, soon=soon) > 0


class Claims:
    """Groups of nodes that blocked runs wait for. Who needs no GPU takes nothing from those who do."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._claimed: dict[bool, set[int]] = {True: set(), False: set()}
        self._left: dict[tuple[object, ...], list[Group]] = {}

    def left_to(self, job: Job) -> list[Group]:
        """Groups that would do for the run, and that nobody ahead of it waits for."""
        found = self._left.get(job.kind.ask)
        if found is None:
            claimed = self._claimed[job.run.gpus_per_rank > 0]
            found = [group for group in suiting(self._state, job.run) if group.number not in claimed]
            self._left[job.kind.ask] = found
        return found

    def add(self, job: Job, groups: Sequence[Group]) -> None:
        """Let a run wait for these groups."""
        self._claimed[job.run.gpus_per_rank > 0].update(group.number for group in groups)
        self._left.clear()


def asks_as(job: Job) -> Callable[[Job], bool]:
    """Tell of runs that have not begun if they ask for the same as ``job``."""
    return lambda other: not other.held and other.kind.ask == job.kind.ask


def start_step(
    state: State,
    job: Job,
    groups: Sequence[Group] | None = None,
    limits: Limits | None = None,
    action: str = "allocate",
) -> Start | None:
    """Start the next ranks of a run, now or when preempted runs have gone; all for which there is room of one that
    cannot grow later.
    """
    if job.run.is_elastic and not job.run.restartable and not job.held:
        return _start_all(state, job, groups, limits, action)
    for promised in (False, True) if state.nodes.awaiting else (False,):
        ranks = _place_step(state, job, groups, limits, promised=promised)
        if ranks:
            return Start(job.run.run, ranks, promised, action)
    return None


def _start_all(
    state: State, job: Job, groups: Sequence[Group] | None, limits: Limits | None, action: str
) -> Start | None:
    mark, best = state.mark(), Start(job.run.run, ())
    for promised in (False, True) if state.nodes.awaiting else (False,):
        found, left = list[tuple[int, str]](), dict(limits or {})
        while not veto(state, job) and (ranks := _place_step(state, job, groups, left, promised=promised)):
            found += ranks
            for node in [node for _, node in ranks if node in left]:
                left[node] -= job.run.claim
        state.undo(mark)
        if len(found) > len(best.ranks):
            best = Start(job.run.run, tuple(found), promised, action)
    for rank, node in best.ranks:
        state.place(job, rank, node, RankState.PROMISED if best.promised else RankState.GRANTED)
    return best if best.ranks else None


def _place_step(
    state: State, job: Job, groups: Sequence[Group] | None, limits: Limits | None, *, promised: bool
) -> tuple[tuple[int, str], ...]:
    """The next ranks with their nodes; empty where there is no room."""
    places = find_places(state, job, soon=promised, groups=groups, limits=limits) if job.step_size else None
    ranks = tuple(zip(job.step(), places or (), strict=False))
    for rank, node in ranks:
        state.place(job, rank, node, RankState.PROMISED if promised else RankState.GRANTED)
    return ranks
