"""Elastic gangs and others that move: what stays theirs while they are preempted, what they cost, who goes first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explained import explain

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import Grant, Slot
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.scheduler import Scheduler
from jupyter_gpu_release.scheduling.state import ClusterSnapshot
from jupyter_gpu_release.scheduling.warm_leases import Asker, HeldLease
from jupyter_gpu_release.scheduling.workload import GPU, Node, Run

POLICY = Policy(run_order=("priority", "age"))


def scheduler(*nodes: Node, queues: tuple[Queue, ...] = (Queue("q"),), policy: Policy = POLICY) -> Scheduler:
    return Scheduler(ClusterSnapshot(nodes, queues, (), policy))


def waiting(name: str, gpus: int = 1, *, least: int | None = None, **facts: object) -> Run:
    ask = ResourceAsk(gpus=gpus)
    if least is not None:
        ask = ResourceAsk(gpus=gpus, ranks=gpus, any_nodes=True, min_gpus=least)
    run = to_run(name, ask, queue="q", user="ann", submitted_at=50.0)
    return replace(run, **facts)  # type: ignore[arg-type]


def held(run: Run, *slots: Slot, started_at: float = 10.0, wanted: int = 0) -> HeldLease:
    return HeldLease(f"lease of {run.run}", replace(run, started_at=started_at), slots, started_at, wanted_ranks=wanted)


def test_short_runs_do_not_starve_one_that_waits_for_all_of_its_gpus() -> None:
    """Whenever one GPU is free, waiting for both would end sooner; the one that is free is kept for it then."""
    found = scheduler(Node("a", 2 * GPU))
    found.hold(held(waiting("short 0", expected_s=100.0), Slot("a", 1), started_at=50.0))
    found.submit(waiting("elastic", 2, least=1, expected_s=3600.0, submitted_at=1.0), Asker())
    found.submit(waiting("short 1", expected_s=100.0), Asker())
    found.submit(waiting("quick", expected_s=40.0), Asker())
    decided = found.decide(100.0)
    assert [grant.run for grant in decided.grants] == ["quick"], "it ends before the other GPU is free"
    found.remove("quick")
    assert [explain(wait) for wait in found.decide(100.0).waits] == [
        "next in q: waits for all 2 GPUs: with the 1 that is free it would end later",
        "2nd in q: what is free is kept for ann's run ahead of it, which would start later",
    ]
    found.drop("lease of short 0")
    assert found.decide(150.0).grants == [Grant("elastic", (Slot("a", 2),))]


def test_a_gang_begins_with_what_there_is_where_its_queue_never_has_all() -> None:
    found = scheduler(Node("a", 2 * GPU), queues=(Queue("q"), Queue("narrow", max=GPU)))
    found.hold(held(waiting("short", expected_s=100.0), Slot("a", 1), started_at=50.0))
    found.submit(waiting("elastic", 2, least=1, expected_s=3600.0, queue="narrow"), Asker())
    assert found.decide(100.0).grants == [Grant("elastic", (Slot("a", 1),))]


@pytest.mark.parametrize("action", ["allocate", "backfill"])
def test_no_gpu_is_kept_for_a_run_that_will_not_take_it(action: str) -> None:
    """It was lost on the node that has room, so it waits for another one, and others use what is free."""
    policy = replace(POLICY, actions=("allocate", "backfill"))
    found = scheduler(Node("a", GPU), Node("b", GPU), policy=policy)
    left_s = 100.0 if action == "allocate" else None
    found.hold(held(waiting("holds", expected_s=left_s), Slot("b", 1), started_at=100.0))
    found.submit(waiting("again", avoid=("a",), submitted_at=1.0), Asker())
    found.submit(waiting("long"), Asker())
    decided = found.decide(100.0)
    assert decided.grants == [Grant("long", (Slot("a", 1),))]
    assert [explain(wait) for wait in decided.waits] == [
        "next in q: needs 1 GPU, 0 of 1 are free apart from nodes that it avoids"
    ]


def test_one_that_cannot_grow_begins_with_all_that_there_is_room_for_but_delays_nobody() -> None:
    """It goes on with what it begins with; a restartable one lets others begin first, and grows."""
    for restartable, gpus in ((False, 3), (True, 1)):
        found = scheduler(Node("a", 3 * GPU))
        found.submit(waiting("elastic", 4, least=1, restartable=restartable), Asker())
        found.submit(waiting("behind"), Asker()), found.submit(waiting("last", submitted_at=60.0), Asker())
        assert found.decide(100.0).grants[0] == Grant("elastic", (Slot("a", gpus),))
    found = scheduler(Node("a", 4 * GPU))
    found.hold(held(waiting("holds", 2, expected_s=100.0), Slot("a", 2)))
    found.submit(waiting("head", 3, submitted_at=1.0), Asker())
    found.submit(waiting("elastic", 2, least=1), Asker())
    assert found.decide(100.0).grants == [Grant("elastic", (Slot("a", 1),))], "the head begins in 10 s with the others"
    found = scheduler(Node("a", 8 * GPU))
    found.hold(held(waiting("holds", 4, expected_s=100.0), Slot("a", 4)))
    found.submit(waiting("head", 5, submitted_at=1.0), Asker())
    found.submit(waiting("elastic", 4, least=2), Asker())
    assert found.decide(100.0).grants == [Grant("elastic", (Slot("a", 3),))]


def test_one_that_cannot_grow_does_not_wait_for_what_gives_it_no_more() -> None:
    found = scheduler(Node("a", 2 * GPU), Node("b", GPU))
    found.hold(replace(held(waiting("ends"), Slot("b", 1)), is_coming=True))
    found.submit(waiting("elastic", 2, least=1), Asker())
    assert found.decide(100.0).grants == [Grant("elastic", (Slot("a", 2),))]


@pytest.mark.parametrize(("lasts_s", "grows"), [(140.0, False), (400.0, True), (None, True)])
def test_a_gang_that_is_about_to_end_does_not_step_aside_to_grow(lasts_s: float | None, grows: bool) -> None:
    """Others may have what it leaves."""
    found = scheduler(Node("a", 4 * GPU))
    elastic = waiting("elastic", 4, least=2, restartable=True, expected_s=lasts_s, priority=75)
    found.hold(held(elastic, Slot("a", 2), wanted=4))
    found.submit(waiting("other", 2), Asker())
    decided = found.decide(100.0)
    assert [grow.ranks for grow in decided.grows] == ([((2, "a"), (3, "a"))] if grows else [])
    assert [grant.run for grant in decided.grants] == ([] if grows else ["other"])


@pytest.mark.parametrize(("lasts_s", "grows"), [(140.0, False), (None, True)])
def test_beside_a_reservation_it_grows_only_where_that_pays(lasts_s: float | None, grows: bool) -> None:
    found = scheduler(Node("a", 4 * GPU), Node("b", 8 * GPU), policy=replace(POLICY, actions=("allocate", "backfill")))
    found.hold(held(waiting("elastic", 4, least=2, restartable=True, expected_s=lasts_s), Slot("a", 2), wanted=4))
    found.hold(held(waiting("holds", 8, expected_s=100.0), Slot("b", 8)))
    found.submit(waiting("head", 8, priority=75), Asker())
    assert [grow.ranks for grow in found.decide(100.0).grows] == ([((2, "a"), (3, "a"))] if grows else [])
