"""Plugins one by one: orders, filters, scores and vetoes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from explained import explain

from jupyter_gpu_release.scheduling.decisions import OverGuarantee, OverMax, OverUserMax, Start, Wait
from jupyter_gpu_release.scheduling.plugins import run_order
from jupyter_gpu_release.scheduling.plugins.node_filters import FILTERS
from jupyter_gpu_release.scheduling.plugins.node_scores import gpu_tiers
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.reasons import because
from jupyter_gpu_release.scheduling.schedule import schedule
from jupyter_gpu_release.scheduling.state import ClusterSnapshot, State
from jupyter_gpu_release.scheduling.workload import GPU, Needs, Node, Rank, RankState, Run

NODE = Node("n", 4 * GPU, "NVIDIA H100 80GB", 80 << 30, 16, 64 << 30, (("rack", "r1"),))


def waits(name: str, user: str = "ann", gpus: int = 1, **more: Any) -> Run:
    return Run(name, more.pop("queue", "q"), (Rank(),), gpus * GPU, 1, user=user, **more)


def runs(name: str, user: str = "ann", gpus: int = 1, **more: Any) -> Run:
    return replace(waits(name, user, gpus, **more), ranks=(Rank(RankState.RUNNING, "n"),))


def decided(*of: Run, queues: tuple[Queue, ...] = (Queue("q"),), gpus: int = 4, **more: Any) -> dict[str, Any]:
    nodes = (Node("n", gpus * GPU),)
    snapshot = ClusterSnapshot(nodes, queues, of, **({"policy": Policy(actions=("allocate",))} | more))
    return {decision.run: decision for decision in schedule(snapshot, 0.0)}


def started(*of: Run, **more: Any) -> list[str]:
    return [run for run, decision in decided(*of, **more).items() if isinstance(decision, Start)]


@pytest.mark.parametrize(
    ("needs", "lack"),
    [
        (Needs(gpu_type="a100"), "GPUs of type a100"),
        (Needs(min_gpu_memory_bytes=100 << 30), "GPUs with 100 GiB of memory"),
        (Needs(cpus=17), "17 CPUs on one node"),
        (Needs(memory_bytes=65 << 30), "65 GiB of memory on one node"),
        (Needs(labels=(("rack", "r2"),)), "the label rack=r2"),
        (Needs(attempts=True), None),
        (Needs("h100", 80 << 30, 16, 64 << 30, (("rack", "r1"),)), None),
    ],
)
def test_filters_name_what_a_node_lacks(needs: Needs, lack: str | None) -> None:
    found = [said for check in FILTERS if (said := check(waits("a", needs=needs), NODE))]
    assert found == ([lack] if lack else [])


def test_a_run_with_a_second_attempt_needs_an_agent_that_tells_attempts_apart() -> None:
    before, run = replace(NODE, knows_attempts=False), waits("a", needs=Needs(attempts=True))
    assert [said for check in FILTERS if (said := check(run, before))] == ["a node agent of this version"]
    assert not any(check(waits("a"), before) for check in FILTERS)


def test_a_users_share_goes_before_age_and_counts_what_was_used_of_late() -> None:
    first = waits("old", "ann", submitted_at=-9.0)
    other = waits("new", "bob", submitted_at=-1.0)
    assert started(runs("r", "ann", 3), first, other) == ["new"]
    usage = {("q", "bob"): 7 * 86400.0 * 2 * GPU}
    assert started(runs("r", "ann", 1), runs("s", "bob", 2), first, other, user_usage=usage) == ["old"]


def test_the_priority_goes_before_the_users_share() -> None:
    assert started(runs("r", "ann", 3), waits("a", "ann", priority=75), waits("b", "bob")) == ["a"]


def test_the_run_that_waited_longer_for_its_work_goes_first() -> None:
    long = waits("long", submitted_at=-100.0, expected_s=1000.0)
    short = waits("short", submitted_at=-50.0, expected_s=10.0)
    assert started(runs("r", gpus=3), long, short) == ["short"]


@pytest.mark.parametrize("bound", [{"max_overtaking_s": 90.0}, {"max_overtaking_factor": 0.09}])
def test_nobody_is_overtaken_beyond_the_bound(bound: dict[str, float]) -> None:
    long = waits("long", submitted_at=-100.0, expected_s=1000.0)
    short = waits("short", submitted_at=-50.0, expected_s=10.0)
    policy = Policy(actions=("allocate",), **bound)  # type: ignore[arg-type]
    assert started(runs("r", gpus=3), long, short, policy=policy) == ["long"]


def test_the_queue_that_is_least_saturated_goes_first_and_late_use_counts() -> None:
    queues = (Queue("a", weight=2), Queue("b"))
    busy = (runs("ra", queue="a"), runs("rb", queue="b"))
    both = (waits("a", queue="a"), waits("b", queue="b"))
    assert started(*busy, *both, queues=queues, gpus=3) == ["a"]
    assert started(*busy, *both, queues=queues, gpus=3, queue_usage={"a": 7 * 86400.0 * 2 * GPU}) == ["b"]


def test_the_queue_of_higher_priority_gets_what_is_beyond_the_guarantees() -> None:
    queues = (Queue("low", guaranteed=1 * GPU, weight=9), Queue("high", priority=1))
    both = (waits("l1", queue="low"), waits("l2", queue="low"), waits("h1", queue="high"), waits("h2", queue="high"))
    assert sorted(started(*both, queues=queues, gpus=3)) == ["h1", "h2", "l1"]


@pytest.mark.parametrize(
    ("queue", "policy", "cause", "words"),
    [
        (Queue("q", max=1 * GPU), Policy(), OverMax("q", GPU), "queue q has its maximum of 1 GPU"),
        (
            Queue("q", max_gpus_per_user=GPU),
            Policy(),
            OverUserMax("q", "ann", GPU),
            "ann has the most that one user may have in q, 1 GPU",
        ),
        (
            Queue("q", guaranteed=GPU),
            Policy(non_restartable_over_guarantee=False),
            OverGuarantee("q", GPU),
            "it cannot be taken back, and queue q is guaranteed 1 GPU for such runs",
        ),
    ],
)
def test_ceilings_hold_and_say_so(queue: Queue, policy: Policy, cause: object, words: str) -> None:
    wait = decided(runs("r"), waits("a"), queues=(queue,), policy=policy)["a"]
    assert isinstance(wait, Wait)
    assert (wait.cause, because(wait.cause)) == (cause, words)


def test_what_can_be_taken_back_does_not_count_against_the_guarantee() -> None:
    policy = Policy(actions=("allocate",), non_restartable_over_guarantee=False)
    queues = (Queue("q", guaranteed=GPU),)
    assert started(runs("r", restartable=True), waits("a"), queues=queues, policy=policy) == ["a"]


def test_a_users_ceiling_holds_for_all_queues_below_it() -> None:
    queues = (Queue("q", max_gpus_per_user=GPU), Queue("a", "q"), Queue("b", "q"))
    found = decided(runs("r", queue="a"), waits("s", queue="b"), waits("t", "bob", queue="b"), queues=queues)
    assert found["s"].cause == OverUserMax("q", "ann", GPU)
    assert isinstance(found["t"], Start)


def test_what_is_kept_for_somebody_is_not_said_to_be_missing() -> None:
    policy = Policy(actions=("allocate", "backfill"), run_order=("age",))
    found = decided(
        runs("r", gpus=2, started_at=0.0, expected_s=60.0),
        waits("gang", gpus=4, submitted_at=-9.0),
        waits("small", submitted_at=-1.0, expected_s=600.0),
        policy=policy,
    )
    assert explain(found["gang"]) == "next in q: needs 4 GPUs, 2 of 4 are free"
    assert (
        explain(found["small"]) == "2nd in q: what is free is kept for ann's run ahead of it, which would start later"
    )


def test_a_gang_that_several_nodes_have_room_for_waits_for_their_gpus() -> None:
    nodes = (Node("n", 2 * GPU), Node("m", 2 * GPU))
    gang = Run("gang", "q", (Rank(),) * 4, GPU, 4, user="ann")
    large = replace(gang, run="large", ranks=(Rank(),) * 5, min_ranks=5)
    decisions = schedule(ClusterSnapshot(nodes, (Queue("q"),), (runs("r", gpus=2), gang, large)), 0.0)
    assert [explain(each) for each in decisions if isinstance(each, Wait)] == [
        "next in q: needs 4 × 1 GPU together, 2 of 4 are free",
        "waits for a node that fits, others may go first: asks for 5 GPUs, the cluster has 4",
    ]


def test_a_run_is_left_alone_for_min_runtime() -> None:
    queues = (Queue("q", weight=0, min_runtime_s=60.0), Queue("p", guaranteed=4 * GPU))
    policy = Policy(actions=("reclaim",))
    young = runs("r", gpus=4, restartable=True, started_at=-59.0)
    old = replace(young, started_at=-60.0)
    asks = waits("a", queue="p")
    assert [started(run, asks, queues=queues, policy=policy) for run in (young, old)] == [[], ["a"]]
    below = (Queue("top", weight=0, min_runtime_s=60.0), Queue("q", "top"), queues[1])
    assert [started(run, asks, queues=below, policy=policy) for run in (young, old)] == [[], ["a"]]


def test_what_a_large_run_of_a_queue_cannot_take_back_a_small_one_can() -> None:
    queues, policy = (Queue("q", weight=0), Queue("p", guaranteed=4 * GPU)), Policy(actions=("reclaim",))
    holds = runs("holds", gpus=2, restartable=True), runs("stays", gpus=2)
    asks = waits("large", queue="p", gpus=4, submitted_at=-9.0), waits("small", queue="p", gpus=2)
    found = decided(*holds, *asks, queues=queues, policy=policy)
    assert isinstance(found["small"], Start)
    assert explain(found["small"]) == "starts on n when the preempted runs have gone (its queue is below its share)"


def _order(held_by_ann: int) -> list[str]:
    """Runs of ann (older) and bob that wait for GPUs of which ann has so many of 12."""
    node = Node("n", 12 * GPU)
    busy = Run("busy", "q", (Rank(RankState.RUNNING, "n"),), held_by_ann * GPU, 1, user="ann")
    waiting = [
        Run(name, "q", (Rank(),), 12 * GPU, 1, user=name, submitted_at=at) for at, name in enumerate(("ann", "bob"))
    ]
    policy = Policy(run_order=("user_share", "age"))
    state = State(ClusterSnapshot((node,), (Queue("q"),), (busy, *waiting), policy))
    key = run_order.keys(state, 10.0)
    return [job.run.run for job in sorted(state.waiting(), key=key)]


def test_of_two_users_who_wait_the_one_who_has_less_goes_first() -> None:
    assert _order(0) == ["ann", "bob"]
    assert _order(3) == ["ann", "bob"]  # less than a third of all makes no difference
    assert _order(4) == ["bob", "ann"]
    assert _order(9) == ["bob", "ann"]


_TIERS = Policy(actions=("allocate",), gpu_tiers={"high": ("h100",), "low": ("t4", "v100")})


@pytest.mark.parametrize(("priority", "node"), [(75, "new"), (25, "old"), (51, "new"), (49, "old")])
def test_urgent_runs_get_new_gpus_and_the_others_leave_them_to_these(priority: int, node: str) -> None:
    nodes = (Node("old", GPU, "NVIDIA T4"), Node("between", GPU, "A100"), Node("new", GPU, "NVIDIA H100 80GB"))
    for listed in (nodes, nodes[::-1]):
        snapshot = ClusterSnapshot(listed, (Queue("q"),), (waits("a", priority=priority),), _TIERS)
        (start,) = schedule(snapshot, 0.0)
        assert isinstance(start, Start)
        assert start.ranks == ((0, node),)


def test_where_only_gpus_of_the_other_tier_are_free_a_run_takes_these() -> None:
    for priority, kind in ((75, "T4"), (25, "H100")):
        snapshot = ClusterSnapshot((Node("n", GPU, kind),), (Queue("q"),), (waits("a", priority=priority),), _TIERS)
        assert isinstance(schedule(snapshot, 0.0)[0], Start)
    assert gpu_tiers(_TIERS, waits("a"), Node("n", GPU, "H100")) == 0.0, "an ordinary run has no tier"
