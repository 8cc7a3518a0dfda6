"""Allocate: start in order whatever fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..decisions import Start
from ..nodes import Group
from ..placement import Limits, find_places, suiting
from ..plugins.vetoes import never, veto
from ..state import Job, State
from ..workload import RankState
from .contest import Contest


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
        if not groups:
            continue
        if veto(state, job):
            state.blocked[job.run.run] = job, groups
            continue
        start = start_step(state, job, groups)
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
    """Start first what others have stepped aside for, on the nodes that it was promised."""
    for name, ranks in state.promises.items():
        job = state.jobs[name]
        if len(ranks) < job.step_size or veto(state, job, len(ranks)):
            continue
        if _take(state, job, ranks, soon=False):
            yield Start(name, tuple(ranks.items()))
        elif state.nodes.awaiting:
            # those who step aside are not gone yet; it was told so already
            _take(state, job, ranks, soon=True)


def _take(state: State, job: Job, ranks: Mapping[int, str], *, soon: bool) -> bool:
    mark = state.mark()
    for rank, node in ranks.items():
        if node not in state.nodes.by_name or state.nodes.room(node, soon=soon) < job.run.gpus_per_rank:
            state.undo(mark)
            return False
        state.place(job, rank, node, RankState.PROMISED if soon else RankState.GRANTED)
    return True


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
    """Start the next ranks of a run, now or when those who yield have gone."""
    for promised in (False, True) if state.nodes.awaiting else (False,):
        places = find_places(state, job, soon=promised, groups=groups, limits=limits)
        if places is not None:
            ranks = tuple(zip(job.step(), places, strict=True))
            for rank, node in ranks:
                state.place(job, rank, node, RankState.PROMISED if promised else RankState.GRANTED)
            return Start(job.run.run, ranks, promised, action)
    return None
