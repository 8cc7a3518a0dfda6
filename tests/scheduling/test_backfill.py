"""Backfill: behind a blocked run only those start that do not delay it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.scheduling.decisions import Start
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.schedule import decide_on, schedule
from jupyter_gpu_release.scheduling.state import ClusterSnapshot, State
from jupyter_gpu_release.scheduling.workload import GPU, Needs, Node, Rank, RankState, Run

_POLICY = Policy(actions=("allocate", "backfill"), run_order=("age",))


def waits(name: str, gpus: int, age_s: float, expected_s: float | None, gpu_type: str = "") -> Run:
    return Run(
        name, "q", (Rank(),), gpus * GPU, 1, submitted_at=-age_s, expected_s=expected_s, nodes=1, needs=Needs(gpu_type)
    )


def runs(name: str, gpus: int, left_s: float | None, node: str = "n") -> Run:
    return Run(
        name,
        "q",
        (Rank(RankState.RUNNING, node),),
        gpus * GPU,
        1,
        submitted_at=-99.0,
        started_at=0.0,
        expected_s=left_s,
    )


def started(*of: Run, nodes: tuple[Node, ...] = (Node("n", 8 * GPU),)) -> set[str]:
    decisions = schedule(ClusterSnapshot(nodes, (Queue("q"),), of, _POLICY), 0.0)
    return {decision.run for decision in decisions if isinstance(decision, Start)}


def test_only_what_ends_before_the_reservation_begins_or_fits_beside_it_starts() -> None:
    running, gang = runs("long", 4, 100.0), waits("gang", 6, 50.0, 10.0)
    assert started(running, gang, waits("short", 4, 40.0, 100.0)) == {"short"}
    assert started(running, gang, waits("longer", 4, 40.0, 101.0)) == set()
    # at 100 s the gang leaves two of the eight
    assert started(running, gang, waits("beside", 2, 40.0, 500.0), waits("third", 1, 30.0, 500.0)) == {"beside"}


def test_with_unknown_ends_the_node_that_is_kept_stays_free() -> None:
    nodes = (Node("n", 8 * GPU), Node("m", 8 * GPU))
    running = [runs("a", 7, None, "n"), runs("b", 4, None, "m")]
    assert started(*running, waits("gang", 8, 50.0, 10.0), waits("small", 2, 40.0, 10.0), nodes=nodes) == set()
    assert started(*running, waits("gang", 8, 50.0, 10.0), waits("small", 1, 40.0, None), nodes=nodes) == {"small"}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7])
def test_with_unknown_ends_as_many_nodes_are_kept_as_a_gang_needs(count: int) -> None:
    nodes = tuple(Node(f"n{number}", GPU) for number in range(count))
    running = [runs(f"r{number}", 1, None, f"n{number}") for number in range(1, count)]
    gang = Run("gang", "q", (Rank(),) * count, GPU, count, submitted_at=-50.0, nodes=count)
    behind = waits("small", 1, 40.0, 10.0)
    assert started(*running, behind, nodes=nodes) == {"small"}
    assert started(*running, gang, behind, nodes=nodes) == ({"gang"} if count == 1 else set())


def test_each_pool_of_nodes_has_a_reservation_of_its_own() -> None:
    nodes = (Node("old", 4 * GPU, "V100"), Node("new", 4 * GPU, "H100"))
    running = [runs("a", 2, 100.0, "old"), runs("b", 2, 50.0, "new")]
    heads = [waits("gang1", 4, 50.0, 10.0, "v100"), waits("gang2", 4, 40.0, 10.0, "h100")]
    small = [
        waits("late1", 1, 9.0, 99.0, "v100"),
        waits("late2", 1, 8.0, 60.0, "h100"),
        waits("soon2", 1, 7.0, 50.0, "h100"),
    ]
    assert started(*running, *heads, *small, nodes=nodes) == {"late1", "soon2"}


def test_a_run_that_nothing_could_take_holds_up_nobody() -> None:
    assert started(waits("never", 9, 50.0, 10.0), waits("small", 8, 40.0, None)) == {"small"}


def test_a_stage_without_gpus_that_waits_keeps_no_gpus_from_others() -> None:
    node, stage = Node("n", 8 * GPU, cpus=8), replace(waits("stage", 0, 50.0, 10.0), cpus_per_rank=6)
    running = replace(runs("long", 1, 100.0), cpus_per_rank=4)
    behind = replace(waits("behind", 0, 40.0, 1.0), cpus_per_rank=1)
    others = waits("gang", 8, 35.0, 10.0), waits("small", 1, 30.0, 10.0)
    assert started(running, stage, behind, *others, nodes=(node,)) == {"small"}


_jobs = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 20), st.integers(0, 5)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(_jobs)
def test_no_head_starts_later_than_its_first_reservation(jobs: list[tuple[int, int, int]]) -> None:
    """Virtual time, durations as expected: whoever is first and blocked starts when it was promised to, or sooner."""
    state = State(ClusterSnapshot((Node("n", 8 * GPU),), (Queue("q"),), (), _POLICY))
    submits = {
        f"r{index}": (sum(gap for *_, gap in jobs[: index + 1]), gpus, s) for index, (gpus, s, _) in enumerate(jobs)
    }
    ends: dict[str, int] = {}
    promised: dict[str, float] = {}
    began: dict[str, int] = {}
    for now in range(sum(s + gap for _, s, gap in jobs) + 1):
        for run in [run for run, end in ends.items() if end == now]:
            state.end(run)
        for run, (at, gpus, s) in submits.items():
            if at == now:
                state.submit(Run(run, "q", (Rank(),), gpus * GPU, 1, submitted_at=at, expected_s=s, nodes=1))
        for start in decide_on(state, float(now)):
            assert isinstance(start, Start)
            state.start(start.run, start.ranks, float(now))
            began[start.run], ends[start.run] = now, now + submits[start.run][2]
        for job, _ in state.heads:
            free = [
                8 - sum(submits[run][1] for run, end in ends.items() if end > later) for later in range(now, now + 300)
            ]
            first = next(now + offset for offset, room in enumerate(free) if room >= submits[job.run.run][1])
            promised.setdefault(job.run.run, first)
    assert began.keys() == submits.keys()
    assert all(began[run] <= first for run, first in promised.items())


def test_each_rank_of_a_gang_takes_of_what_a_reservation_leaves() -> None:
    running, head = runs("long", 4, 100.0), waits("head", 6, 50.0, 10.0)
    pair = Run("pair", "q", (Rank(), Rank()), GPU, 2, submitted_at=-40.0, expected_s=500.0, nodes=1)
    assert started(running, head, pair, waits("third", 1, 30.0, 500.0)) == {"pair"}
