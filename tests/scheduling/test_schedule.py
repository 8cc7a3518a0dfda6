"""Properties of a pass over random clusters, trees of queues and runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from explained import explain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.scheduling.actions.contest import Contest
from jupyter_gpu_release.scheduling.decisions import (
    Decision,
    NeverFits,
    OverGuarantee,
    OverMax,
    OverUserMax,
    Preempt,
    Start,
    Wait,
)
from jupyter_gpu_release.scheduling.placement import find_places
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.schedule import decide_on, run_actions, schedule, waits
from jupyter_gpu_release.scheduling.state import ClusterSnapshot, State
from jupyter_gpu_release.scheduling.workload import GPU, Node, Rank, RankState, Run

_ACTIONS = ("allocate", "consolidate", "reclaim", "preempt")


@st.composite
def trees(draw: st.DrawFn) -> tuple[Queue, ...]:
    queues: list[Queue] = []
    for index in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from(["", *(queue.name for queue in queues)]))
        most = draw(st.none() | st.integers(1, 8))
        queues.append(
            Queue(
                f"q{index}",
                parent,
                draw(st.integers(0, 4)) * GPU,
                None if most is None else most * GPU,
                draw(st.integers(0, 3)),
                draw(st.integers(0, 1)),
            )
        )
    return tuple(queues)


@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    queues = draw(trees())
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    nodes = tuple(Node(f"n{index}", draw(st.integers(0, 4)) * GPU) for index in range(draw(st.integers(1, 3))))
    free = {node.name: node.gpus for node in nodes}
    runs = tuple(draw(runs_of(index, leaves, free)) for index in range(draw(st.integers(0, 8))))
    actions = draw(st.sampled_from([_ACTIONS, ("allocate", "backfill", *_ACTIONS[1:])]))
    policy = Policy(actions=actions, non_restartable_over_guarantee=draw(st.booleans()))
    return ClusterSnapshot(nodes, queues, runs, policy)


@st.composite
def runs_of(draw: st.DrawFn, index: int, leaves: list[str], free: dict[str, int]) -> Run:
    """A run that waits, or that has its least ranks where there is room."""
    count, each = draw(st.integers(1, 3)), draw(st.sampled_from([GPU // 2, GPU, 2 * GPU]))
    least = draw(st.integers(1, count))
    nodes = draw(st.sampled_from(["any", 1]))
    places: list[str] = []
    for _ in range(draw(st.sampled_from([0, least, count]))):
        place = next(
            (name for name, left in free.items() if left >= each and (nodes == "any" or name in (places or free))), None
        )
        if place is not None:
            free[place] -= each
            places.append(place)
    if len(places) < least:
        for place in places:
            free[place] += each
        places = []
    ranks = [Rank(RankState.RUNNING, place) for place in places] + [Rank()] * (count - len(places))
    return Run(
        f"r{index}",
        draw(st.sampled_from(leaves)),
        tuple(ranks),
        each,
        least,
        draw(st.sampled_from([25, 50, 75, 100])),
        draw(st.booleans()),
        draw(st.sampled_from(["ann", "bob"])),
        -float(draw(st.integers(0, 3))),
        expected_s=draw(st.none() | st.sampled_from([1.0, 5.0])),
        nodes=nodes,
    )


def after(snapshot: ClusterSnapshot, decisions: list[Decision], *, settled: bool) -> ClusterSnapshot:
    """The cluster with the decisions carried out; ``settled``: preempted runs have gone."""
    runs = {run.run: list(run.ranks) for run in snapshot.runs}
    for decision in decisions:
        if isinstance(decision, Start):
            for index, node in decision.ranks:
                if settled or not decision.promised:
                    runs[decision.run][index] = Rank(RankState.RUNNING, node)
        elif isinstance(decision, Preempt):
            places = dict(decision.moves) if settled else {}
            for index in decision.ranks:
                runs[decision.run][index] = (
                    Rank(RankState.RUNNING, places[index])
                    if index in places
                    else Rank()
                    if settled
                    else replace(runs[decision.run][index], state=RankState.YIELDING)
                )
    return replace(snapshot, runs=tuple(replace(run, ranks=tuple(runs[run.run])) for run in snapshot.runs))


def _next_round(snapshot: ClusterSnapshot, decisions: list[Decision]) -> ClusterSnapshot:
    """The cluster when preempted runs have gone and wait, and what was promised waits for the next pass."""
    then = {run.run: list(run.ranks) for run in after(snapshot, decisions, settled=True).runs}
    for decision in decisions:
        if isinstance(decision, Start) and decision.promised:
            for index, node in decision.ranks:
                then[decision.run][index] = Rank(RankState.QUEUED, node)
        elif isinstance(decision, Preempt):
            for index, node in decision.moves:
                then[decision.run][index] = Rank(RankState.QUEUED, node)
    return replace(snapshot, runs=tuple(replace(run, ranks=tuple(then[run.run])) for run in snapshot.runs))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots())
def test_passes_come_to_rest(snapshot: ClusterSnapshot) -> None:
    """Nobody is preempted for ever in turn; promises are kept in the next pass."""
    for _ in range(12):
        decisions = [decision for decision in schedule(snapshot, 0.0) if not isinstance(decision, Wait)]
        if not decisions:
            return
        snapshot = _next_round(snapshot, list(decisions))
        promised = {
            run.run for run in snapshot.runs for rank in run.ranks if rank.state is RankState.QUEUED and rank.node
        }
        again = {decision.run for decision in schedule(snapshot, 0.0) if isinstance(decision, Start)}
        assert promised <= again
    raise AssertionError("the passes go on and on")


def _held(snapshot: ClusterSnapshot) -> Counter[str]:
    held: Counter[str] = Counter()
    for run in snapshot.runs:
        held.update({rank.node: 0 for rank in run.ranks if rank.node})
        for rank in run.ranks:
            held[rank.node] += run.gpus_per_rank if rank.node else 0
    return held


_common = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@_common
@given(snapshots())
def test_never_more_than_there_is_and_never_part_of_a_gang(snapshot: ClusterSnapshot) -> None:
    decisions = schedule(snapshot, 0.0)
    assert decisions == schedule(snapshot, 0.0)
    for settled in (False, True):
        then = after(snapshot, decisions, settled=settled)
        held = _held(then)
        assert all(held[node.name] <= node.gpus for node in then.nodes)
        for run in then.runs:
            places = [rank.node for rank in run.ranks if rank.state is RankState.RUNNING]
            assert not settled or not places or len(places) >= run.min_ranks
            assert run.nodes == "any" or len(set(places)) <= 1
    assert all(explain(decision) for decision in decisions)


@_common
@given(snapshots())
def test_ceilings_hold_and_only_restartable_runs_are_taken(snapshot: ClusterSnapshot) -> None:
    before, state = State(snapshot), State(snapshot)
    decisions = run_actions(state, 0.0)
    for name, account in state.accounts.items():
        most, had = account.queue.max, before.accounts[name]
        assert most is None or account.allocated <= max(most, had.allocated)
        if not snapshot.policy.non_restartable_over_guarantee:
            assert account.fixed <= max(account.guaranteed, had.fixed)
    runs = {run.run: run for run in snapshot.runs}
    yielded = [runs[decision.run] for decision in decisions if isinstance(decision, Preempt)]
    assert all(run.restartable and run.priority < 100 for run in yielded)


@_common
@given(snapshots())
def test_a_pass_leaves_nothing_startable_behind(snapshot: ClusterSnapshot) -> None:
    state = State(snapshot)
    # preempted runs still count until they have gone
    is_open = any(isinstance(decision, Preempt) for decision in run_actions(state, 0.0)) or state.heads
    for wait in waits(state, 0.0):
        fits = find_places(state, state.jobs[wait.run], soon=False) is not None
        assert not fits or is_open or isinstance(wait.cause, OverMax | OverGuarantee)


@_common
@given(snapshots())
def test_every_run_that_does_not_start_is_answered(snapshot: ClusterSnapshot) -> None:
    decisions = schedule(snapshot, 0.0)
    started = {decision.run for decision in decisions if isinstance(decision, Start)}
    waiting = {decision.run for decision in decisions if isinstance(decision, Wait)}
    asked = {run.run for run in snapshot.runs if all(rank.state is RankState.QUEUED for rank in run.ranks)}
    assert asked <= started | waiting
    assert not started & waiting


def _on_gpus(state: State, run: Run) -> Run:
    """The run with the shared GPUs that its ranks are on, as Ray would have told them."""
    ranks = [replace(rank, gpu=state.nodes.gpu_of(run.run, index)) for index, rank in enumerate(run.ranks)]
    return replace(run, ranks=tuple(ranks))


@_common
@given(snapshots(), st.data())
def test_the_index_that_is_kept_decides_as_one_made_anew(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """Runs come one by one, starts are carried out, and some runs end in between."""
    kept = State(replace(snapshot, runs=()))
    runs: dict[str, Run] = {}
    for now_s, run in enumerate(snapshot.runs, start=1):
        kept.submit(run)
        runs[run.run] = _on_gpus(kept, run)
        decided = decide_on(kept, float(now_s))
        anew = State(replace(snapshot, runs=tuple(runs.values())))
        assert decided == decide_on(anew, float(now_s))
        assert (kept.nodes.free, kept.nodes.coming) == (anew.nodes.free, anew.nodes.coming)
        for start in decided:
            if isinstance(start, Start) and not start.promised:
                kept.start(start.run, start.ranks, float(now_s))
                started = _on_gpus(
                    kept, after(replace(snapshot, runs=(runs[start.run],)), [start], settled=False).runs[0]
                )
                first = runs[start.run].started_at if kept.jobs[start.run].held > len(start.ranks) else float(now_s)
                runs[start.run] = replace(started, started_at=first)
        if runs and data.draw(st.booleans()):
            over = data.draw(st.sampled_from(sorted(runs)))
            kept.end(over)
            del runs[over]


@_common
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 6))
def test_a_guarantee_is_given_back_when_it_is_asked_for(guaranteed: int, gpus: int, taken: int) -> None:
    """One queue has everything, run by run; the other gets its guarantee as far as there are GPUs."""
    queues = (Queue("has", weight=0), Queue("asks", guaranteed=guaranteed * GPU, weight=0))
    running = [
        Run(f"has{index}", "has", (Rank(RankState.RUNNING, "n"),), GPU, 1, restartable=True)
        for index in range(min(taken, gpus))
    ]
    waiting = [Run(f"asks{index}", "asks", (Rank(),), GPU, 1) for index in range(6)]
    snapshot = ClusterSnapshot(
        (Node("n", gpus * GPU),), queues, (*running, *waiting), Policy(actions=("allocate", "reclaim"))
    )
    started = [decision for decision in schedule(snapshot, 0.0) if isinstance(decision, Start)]
    assert len(started) >= min(guaranteed, gpus)


@_common
@given(snapshots())
def test_whoever_a_rule_stops_is_left_out_with_those_whom_it_stops_as_well(snapshot: ClusterSnapshot) -> None:
    """A queue at its maximum is not gone through run by run, and the decisions are the same."""
    refuse, decided = Contest.refuse, schedule(snapshot, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contest, "refuse", lambda *_, **__: None)
        assert decided == schedule(snapshot, 0.0)
    assert Contest.refuse is refuse


def test_a_queue_at_its_maximum_is_not_gone_through_run_by_run(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [
        Run(f"r{age}", "q", (Rank(),), GPU, 1, user=f"u{age % 5}", submitted_at=-float(age), limit_s=float(age + 1))
        for age in range(500)
    ]
    looked: list[str] = []
    pop = Contest.pop
    monkeypatch.setattr(Contest, "pop", lambda self: (lambda job: looked.append("") or job)(pop(self)))
    snapshot = ClusterSnapshot((Node("n", 4 * GPU),), (Queue("q", max=GPU),), tuple(waiting), Policy())
    assert sum(isinstance(decision, Start) for decision in schedule(snapshot, 0.0)) == 1
    assert len(looked) < 10


@_common
@given(snapshots())
def test_nobody_grows_before_those_of_the_queue_who_have_nothing(snapshot: ClusterSnapshot) -> None:
    """A run that waits with no lower priority, and would fit on what another grew by, is stopped by a rule."""
    state = State(snapshot)
    had = {name: job.held for name, job in state.jobs.items()}
    starts = [found for found in run_actions(state, 0.0) if isinstance(found, Start)]
    grown = [state.jobs[start.run].run for start in starts if had[start.run] >= state.jobs[start.run].run.min_ranks]
    rules = OverMax | OverUserMax | OverGuarantee | NeverFits
    for wait in waits(state, 0.0):
        run = state.jobs[wait.run].run
        for other in grown:
            if run.queue == other.queue and run.priority >= other.priority and run.min_ranks == 1:
                assert run.gpus_per_rank > other.gpus_per_rank or isinstance(wait.cause, rules)


@_common
@given(snapshots())
def test_what_was_carried_out_leaves_nothing_to_do_at_the_same_moment(snapshot: ClusterSnapshot) -> None:
    """Without an event between them the second pass changes nothing; who was asked is not asked again."""
    decided = [found for found in schedule(snapshot, 0.0) if not isinstance(found, Wait)]
    then = after(snapshot, decided, settled=False)
    again = [found for found in schedule(then, 0.0) if not isinstance(found, Wait)]
    assert not [found for found in again if isinstance(found, Start) and not found.promised]
