"""Nodes that a pool asks for and gives back."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from jupyter_gpu_release.scheduling.decisions import NeverFits, Start, Wait
from jupyter_gpu_release.scheduling.pool import Lent, Pool, PoolPlan, plan_pool
from jupyter_gpu_release.scheduling.queues.tree import Queue
from jupyter_gpu_release.scheduling.schedule import schedule
from jupyter_gpu_release.scheduling.state import ClusterSnapshot
from jupyter_gpu_release.scheduling.workload import Needs, Node, Rank, Run

POOL = Pool(Node("", 2000, cpus=8, left_s=3600.0), most=3, idle_return_s=600.0)


def run(name: str, gpus: int = 1, nodes: int | Literal["any"] = 1, limit_s: float | None = None, cpus: int = 0) -> Run:
    parts = nodes if isinstance(nodes, int) else gpus
    ranks = (Rank(),) * parts
    return Run(name, "q", ranks, gpus * 1000 // parts, parts, nodes=nodes, limit_s=limit_s, cpus_per_rank=cpus)


def asked_for(*wanted: Run, there: tuple[Lent, ...] = (), coming: int = 0, asked: tuple[str, ...] = ()) -> PoolPlan:
    return plan_pool(POOL, wanted, there, coming, asked)


def test_small_runs_share_a_node() -> None:
    assert asked_for(run("a"), run("b")).submit == 1
    assert asked_for(run("a"), run("b"), run("c")).submit == 2
    assert asked_for(run("a"), run("b"), run("c")).asked == {"a", "b", "c"}


def test_runs_without_gpus_share_the_cpus() -> None:
    assert asked_for(*[run(str(number), 0, cpus=4) for number in range(3)]).submit == 2


def test_a_gang_gets_all_of_its_nodes_or_none() -> None:
    assert asked_for(run("gang", 6, 3)).submit == 3
    busy = (Lent("n1", 0),)
    found = asked_for(run("gang", 6, 3), there=busy)
    assert (found.submit, found.refused) == (0, {"gang": "the pool has all of its 3 nodes"})
    assert asked_for(run("gang", 4, 2), there=busy).submit == 2


def test_a_gang_counts_the_free_nodes_that_are_there_and_keeps_them() -> None:
    there = (Lent("n1", 2000, 8, idle_s=5000.0),)
    found = asked_for(run("gang", 6, 3), there=there)
    assert (found.submit, found.give_back) == (2, ())


def test_what_is_asked_already_is_not_asked_again() -> None:
    assert asked_for(run("gang", 4, 2), asked=("1",)).submit == 1
    assert asked_for(run("gang", 4, 2), coming=1, asked=("1",)) == PoolPlan(asked=frozenset({"gang"}))


def test_what_nobody_waits_for_is_taken_back_the_last_first() -> None:
    assert asked_for(asked=("1", "2")).withdraw == ("1", "2")
    assert asked_for(run("a"), asked=("1", "2")).withdraw == ("2",)
    assert asked_for(run("a"), coming=1, asked=("1", "2")).withdraw == ("1", "2")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (run("a", 3), "no node of the pool has 3 GPUs on one node"),
        (run("a", 8, 4), "the pool has at most 3 nodes"),
        (run("a", 7, "any"), "the pool has at most 3 nodes"),
        (
            run("a", limit_s=7200.0),
            "its --timeout is 2 h, and the pool's walltime leaves 1 h: shorten it, or add --restartable",
        ),
        (run("a", 0, cpus=9), "no node of the pool has 9 CPUs on one node"),
    ],
)
def test_what_the_pool_can_never_take_is_refused_and_holds_up_nobody(wanted: Run, why: str) -> None:
    found = asked_for(wanted, run("b"))
    assert (dict(found.refused), found.submit, found.asked) == ({"a": why}, 1, {"b"})


def test_a_node_that_ends_too_soon_is_no_room() -> None:
    soon = (Lent("n1", 2000, 8, left_s=60.0),)
    assert asked_for(run("a", limit_s=600.0), there=soon).submit == 1
    assert asked_for(run("a", limit_s=30.0), there=soon).submit == 0


def test_idle_nodes_go_back_but_for_the_least() -> None:
    there = (Lent("n1", 2000, 8, 700.0), Lent("n2", 2000, 8, 800.0), Lent("n3", 1000, 4))
    assert asked_for(there=there).give_back == ("n2", "n1")
    pool = Pool(POOL.shape, 3, least=2)
    assert plan_pool(pool, (), there).give_back == ("n2",)
    assert plan_pool(pool, (), ()).submit == 2
    assert asked_for(there=(Lent("n1", 2000, 8, 599.0),)).give_back == ()


def test_who_waits_for_what_the_pool_never_has_keeps_no_idle_node() -> None:
    assert asked_for(run("a", 3), there=(Lent("n1", 2000, 8, 700.0),)).give_back == ("n1",)


H100, A100 = Node("n1", 2000, "H100", 80 << 30, cpus=8), Node("n1", 2000, "A100", 40 << 30, cpus=8)


@pytest.mark.parametrize("needs", [Needs(gpu_type="h100"), Needs(min_gpu_memory_bytes=80 << 30)])
def test_an_unfit_node_is_no_room_and_goes_back_though_somebody_waits(needs: Needs) -> None:
    choosy = replace(run("a"), needs=needs)
    found = asked_for(choosy, there=(Lent("n1", 2000, 8, 700.0, shape=A100),))
    assert (found.submit, found.give_back) == (1, ("n1",))
    found = asked_for(choosy, there=(Lent("n1", 2000, 8, 700.0, shape=H100),))
    assert (found.submit, found.give_back) == (0, ())


@pytest.mark.parametrize("needs", [Needs(gpu_type="h100"), Needs(min_gpu_memory_bytes=80 << 30)])
def test_what_no_node_had_that_came_is_asked_for_no_more(needs: Needs) -> None:
    choosy = replace(run("a"), needs=needs)
    assert plan_pool(replace(POOL, seen=(A100,)), [choosy], ()).refused["a"].startswith("no node of the pool has GPUs")
    assert plan_pool(replace(POOL, seen=(A100, H100)), [choosy], ()).submit == 1


def test_a_node_in_trouble_is_replaced_and_is_none_of_the_least() -> None:
    there = (Lent("n1", 2000, 8, 700.0, takes_runs=False),)
    found = plan_pool(replace(POOL, least=1), [run("a")], there)
    assert (found.submit, found.give_back) == (1, ("n1",))
    assert plan_pool(replace(POOL, least=1, most=1), [], there).submit == 0


def test_a_node_takes_only_what_is_over_before_it_ends() -> None:
    wanted = (run("long", limit_s=3600.0), run("short", limit_s=300.0), run("open"))
    snapshot = ClusterSnapshot((Node("n1", 3000, left_s=600.0),), (Queue("q"),), wanted)
    decided = {decision.run: decision for decision in schedule(snapshot, 0.0)}
    assert {name for name, decision in decided.items() if isinstance(decision, Start)} == {"short", "open"}
    waits = decided["long"]
    assert isinstance(waits, Wait)
    assert isinstance(waits.cause, NeverFits)
    assert "a node that stays for 1 h" in waits.cause.lack
    anew = ClusterSnapshot((Node("n1", 3000),), (Queue("q"),), wanted)
    assert all(isinstance(decision, Start) for decision in schedule(anew, 0.0))
