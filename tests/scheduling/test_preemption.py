"""Preemption, as the gateway asks for it: as a whole or not at all, places kept, the least work lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explained import explain

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import Coming, Grant, Grow, Promise, Slot, Unready
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.scheduler import Scheduler
from jupyter_gpu_release.scheduling.start_estimates.expected_run_times import ExpectedRunTimes
from jupyter_gpu_release.scheduling.start_estimates.play_ahead import play_ahead
from jupyter_gpu_release.scheduling.state import ClusterSnapshot
from jupyter_gpu_release.scheduling.warm_leases import Asker, HeldLease
from jupyter_gpu_release.scheduling.workload import GPU, Needs, Node, Rank, RankState, Run

A, B = Node("a", 2 * GPU), Node("b", 2 * GPU)
POLICY = Policy(run_order=("priority", "age"))


def scheduler(*queues: Queue, nodes: tuple[Node, ...] = (A,)) -> Scheduler:
    return Scheduler(ClusterSnapshot(nodes, queues or (Queue("q"),), (), POLICY))


def waiting(name: str, gpus: int = 1, *, queue: str = "q", user: str = "ann", priority: int = 50) -> Run:
    ask = ResourceAsk(gpus=gpus)
    return to_run(name, ask, queue=queue, user=user, priority=priority, submitted_at=50.0, restartable=True)


def held(run: Run, node: str, *, saved_at: float | None = None, gpus: int = 1) -> HeldLease:
    run = replace(run, started_at=10.0, saved_at=saved_at)
    return HeldLease(f"lease of {run.run}", run, (Slot(node, gpus),), 10.0)


def test_of_equal_runs_the_one_steps_aside_that_loses_least_work() -> None:
    found = scheduler()
    found.hold(held(waiting("little lost", priority=25), "a", saved_at=95.0))
    found.hold(held(replace(waiting("much lost", priority=25), submitted_at=60.0), "a", saved_at=20.0))
    found.submit(waiting("urgent", priority=75), Asker())
    (room,) = found.decide(100.0).rooms
    assert (room.run, room.placement, room.action) == ("urgent", (Slot("a", 1),), "preempt")
    assert [each.run for each in room.preempts] == ["little lost"]
    assert explain(room.preempts[0]) == "ann's run has the higher priority in this queue"


def test_places_are_kept_until_those_have_gone_who_step_aside() -> None:
    """Nobody else is asked, nobody else gets them, and the lease is handed over as it is."""
    found = scheduler()
    victim, other = held(waiting("low", priority=25), "a"), held(waiting("other", priority=25), "a")
    found.hold(victim), found.hold(replace(other, run=replace(other.run, restartable=False)))
    found.submit(waiting("urgent", priority=75), Asker(wait_s=60.0))
    decided = found.decide(100.0)
    assert [type(wait.cause) for wait in decided.waits] == [Coming]
    assert not decided.promises
    (room,) = decided.rooms
    found.promise(room.run, room.ranks)
    found.hold(replace(victim, is_coming=True))
    found.submit(replace(waiting("later", priority=75), submitted_at=1.0), Asker())
    decided = found.decide(101.0)
    assert decided.promises == [Promise("urgent", (Slot("a", 1),))]
    assert [[each.run for each in found.decide(at_s).expired] for at_s in (171.0, 173.0)] == [[], ["urgent"]]
    assert not decided.rooms
    assert not decided.grants
    found.drop(victim.lease)
    assert found.decide(102.0).grants == [Grant("urgent", (Slot("a", 1),))]
    found.unpromise("urgent")
    assert found.decide(102.0).grants == [Grant("later", (Slot("a", 1),))], "nothing is left of a promise"


def test_a_run_that_moves_finds_its_new_place_free() -> None:
    found = scheduler(nodes=(A, B))
    left, right = held(waiting("left"), "a"), held(waiting("right"), "b")
    found.hold(left), found.hold(right)
    found.submit(waiting("pair", 2), Asker())
    (room,) = found.decide(100.0).rooms
    (moved,) = room.preempts
    assert room.action == "consolidate"
    assert moved.moves
    ((_, target),) = moved.moves
    found.promise(room.run, room.ranks), found.promise(moved.run, moved.moves)
    lease = left if moved.run == "left" else right
    found.hold(replace(lease, is_coming=True))
    found.submit(replace(waiting("greedy"), submitted_at=1.0), Asker())
    assert not found.decide(101.0).grants, "it is kept while the run is still where it was"
    found.drop(lease.lease)
    found.submit(lease.run, Asker())
    assert set(found.decide(102.0).grants) == {Grant("pair", room.placement), Grant(moved.run, (Slot(target, 1),))}


def test_a_run_that_ended_before_it_moved_keeps_nothing() -> None:
    found = scheduler(nodes=(A, B))
    lease = held(waiting("left"), "a")
    found.hold(lease)
    found.promise("left", ((0, "b"),))
    found.drop(lease.lease), found.unpromise("left")
    assert found.state.nodes.free == {"a": 2 * GPU, "b": 2 * GPU}
    assert not found.promised


@pytest.mark.parametrize(("saved_at", "moves"), [(None, True), (95.0, True), (-10_000.0, False)])
def test_runs_are_moved_together_only_if_less_is_lost_than_gained(saved_at: float | None, moves: bool) -> None:
    """The pair would wait for 3,600 s otherwise: two GPUs lie idle for so long."""
    found = scheduler(nodes=(A, B))
    found.hold(held(waiting("left"), "a", saved_at=saved_at))
    found.hold(held(waiting("right"), "b", saved_at=saved_at))
    found.submit(waiting("pair", 2), Asker())
    assert bool(found.decide(100.0).rooms) is moves


def test_without_a_file_nobody_beats_others_by_a_word() -> None:
    """``--priority`` orders the runs of one user: they keep that user's turns."""
    file = QueuesFile()
    found = Scheduler(ClusterSnapshot((A,), tuple(file.tree.queues.values()), (), POLICY))
    for name in ("one", "two"):
        found.hold(held(waiting(name, queue="default", user="bob", priority=25), "a"))
    found.submit(waiting("urgent", queue="default", priority=75), Asker())
    assert not found.decide(100.0).rooms
    found.submit(replace(waiting("bob's", queue="default", user="bob"), submitted_at=1.0), Asker())
    found.submit(replace(waiting("ann's", queue="default"), submitted_at=2.0), Asker())
    assert [wait.run for wait in found.decide(100.0).waits] == ["bob's", "urgent", "ann's"]
    found.drop("lease of one"), found.drop("lease of two")
    assert [grant.run for grant in found.decide(100.0).grants] == ["bob's", "urgent"]


def test_an_elastic_run_grows_and_gives_back_what_it_can_do_without() -> None:
    found = scheduler(nodes=(Node("a", 4 * GPU),))
    ask = ResourceAsk(gpus=3, ranks=3, any_nodes=True, min_gpus=1)
    elastic = to_run("elastic", ask, queue="q", priority=25, restartable=True)
    found.submit(elastic, Asker())
    assert found.decide(100.0).grants == [Grant("elastic", (Slot("a", 3),))], "all at once where there is room"
    found.remove("elastic")
    small = HeldLease("lease", replace(elastic, started_at=10.0), (Slot("a", 1),), 10.0, wanted_ranks=3)
    found.hold(small)
    assert found.decide(100.0).grows == [Grow("elastic", "lease", ((1, "a"), (2, "a")), (Slot("a", 2),))]
    found.hold(replace(small, slots=(Slot("a", 3),)))
    found.submit(waiting("urgent", 2, priority=75), Asker())
    (room,) = found.decide(100.0).rooms
    assert [(each.run, each.ranks) for each in room.preempts] == [("elastic", (2,))]


@pytest.mark.parametrize(("lasts_s", "restartable", "begins"), [(50.0, False, 3), (500.0, False, 0), (500.0, True, 3)])
def test_a_run_that_cannot_grow_begins_with_fewer_where_that_ends_sooner(
    lasts_s: float, restartable: bool, begins: int
) -> None:
    """One GPU more is free in a hundred seconds."""
    found = scheduler(nodes=(Node("a", 4 * GPU),))
    found.hold(held(replace(waiting("other"), expected_s=190.0), "a"))
    ask = ResourceAsk(gpus=4, ranks=4, any_nodes=True, min_gpus=2)
    elastic = to_run("elastic", ask, queue="q", submitted_at=60.0, restartable=restartable)
    found.submit(replace(elastic, expected_s=lasts_s), Asker())
    decided = found.decide(100.0)
    assert decided.grants == ([Grant("elastic", (Slot("a", begins),))] if begins else [])
    said = [explain(wait) for wait in decided.waits]
    words = "waits for all 4 GPUs: with the 3 that are free it would end later"
    assert said == ([] if begins else [f"next in q: {words}"])
    found.submit(replace(waiting("small"), submitted_at=70.0, expected_s=10.0), Asker())
    assert "small" in [grant.run for grant in found.decide(100.0).grants] or begins, "others use what it leaves"


def test_expected_starts_know_who_steps_aside() -> None:
    run = replace(waiting("low", priority=25), ranks=(Rank(RankState.RUNNING, "a"),) * 1, gpus_per_rank=2 * GPU)
    run = replace(run, started_at=0.0, expected_s=500.0)
    urgent = replace(waiting("urgent", 2, priority=75), expected_s=50.0)
    after = replace(waiting("after", 2, priority=25), submitted_at=60.0, expected_s=10.0)
    course = play_ahead(ClusterSnapshot((A,), (Queue("q"),), (run, urgent, after), POLICY), ExpectedRunTimes(100.0))
    assert course["urgent"].at_s == 100.0
    assert course["after"].at_s == 550.0, "the one that was preempted is older, and goes on first"


def test_room_is_made_as_a_whole() -> None:
    found = scheduler()
    found.hold(held(waiting("one", priority=25), "a")), found.hold(held(waiting("two", priority=25), "a"))
    found.submit(waiting("pair", 2, priority=75), Asker())
    (room,) = found.decide(100.0).rooms
    assert room.placement == (Slot("a", 2),)
    assert {each.run for each in room.preempts} == {"one", "two"}


def test_of_those_that_step_aside_the_more_urgent_one_goes_on_elsewhere() -> None:
    found = scheduler(nodes=(A, Node("b", GPU)))
    for name, priority in (("least", 10), ("more", 20)):
        found.hold(held(waiting(name, priority=priority), "a"))
    found.submit(waiting("urgent", 2, priority=75), Asker())
    (room,) = found.decide(100.0).rooms
    assert {each.run: each.moves for each in room.preempts} == {"least": (), "more": ((0, "b"),)}


def test_two_gangs_step_aside_to_a_node_that_has_room_for_just_both() -> None:
    found = scheduler(nodes=(Node("a", 4 * GPU, "H100"), Node("b", 4 * GPU, "T4")))
    ask = ResourceAsk(gpus=2, ranks=2, any_nodes=True)
    for name in ("one", "two"):
        gang = to_run(name, ask, queue="q", priority=25, restartable=True)
        found.hold(held(gang, "a", gpus=2))
    found.submit(replace(waiting("urgent", 4, priority=75), needs=Needs(gpu_type="h100")), Asker())
    (room,) = found.decide(100.0).rooms
    assert {each.run: each.moves for each in room.preempts} == dict.fromkeys(("one", "two"), ((0, "b"), (1, "b")))


def test_a_node_that_lacks_the_environment_is_not_taken_though_it_is_the_only_one() -> None:
    found = scheduler()
    found.submit(replace(waiting("new"), unready=("a",)), Asker())
    decided = found.decide(100.0)
    assert not decided.grants
    assert [type(wait.cause) for wait in decided.waits] == [Unready]


@pytest.mark.parametrize(("gpus", "taken"), [(2, "b"), (3, "a")])
def test_a_node_where_a_run_was_lost_is_taken_where_no_other_is_large_enough(gpus: int, taken: str) -> None:
    found = scheduler(nodes=(Node("a", 4 * GPU), B))
    found.submit(replace(waiting("again", gpus), avoid=("a",)), Asker())
    assert found.decide(100.0).grants == [Grant("again", (Slot(taken, gpus),))]


def test_of_those_that_were_looked_at_the_most_deserving_is_spared() -> None:
    """One of the small ones may stay, once the large one is preempted."""
    found = scheduler(nodes=(Node("a", 4 * GPU),))
    for name, gpus, priority in (("least", 1, 10), ("more", 1, 20), ("large", 2, 30)):
        found.hold(held(waiting(name, gpus, priority=priority), "a", gpus=gpus))
    found.submit(waiting("urgent", 3, priority=75), Asker())
    (room,) = found.decide(100.0).rooms
    assert {each.run for each in room.preempts} == {"least", "large"}


def test_of_equal_runs_the_youngest_is_taken_and_the_most_urgent_never() -> None:
    found = scheduler()
    for name, submitted_at in (("young", 60.0), ("old", 40.0)):
        found.hold(held(replace(waiting(name, priority=25), submitted_at=submitted_at), "a"))
    found.submit(waiting("urgent", priority=75), Asker())
    (room,) = found.decide(100.0).rooms
    assert [each.run for each in room.preempts] == ["young"]


@pytest.mark.parametrize(("priority", "taken"), [(99, True), (100, False)])
def test_a_run_of_the_priority_that_is_never_preempted_stays_though_another_queue_is_owed_its_gpus(
    priority: int, taken: bool
) -> None:
    found = scheduler(Queue("owed", guaranteed=2 * GPU), Queue("q"))
    for name in ("one", "two"):
        found.hold(held(waiting(name, priority=priority), "a"))
    found.submit(waiting("waits", queue="owed"), Asker())
    assert bool(found.decide(100.0).rooms) is taken


def test_moving_a_run_costs_something_though_nothing_of_it_is_lost() -> None:
    """Two GPUs would lie idle for forty seconds; moving one rank costs thirty, and its ten seconds of work."""
    for ends_s, moves in ((45.0, True), (15.0, False)):
        found = scheduler(nodes=(A, B))
        found.hold(held(replace(waiting("left"), expected_s=90.0 + ends_s), "a", saved_at=100.0))
        found.hold(held(replace(waiting("right"), expected_s=90.0 + ends_s), "b", saved_at=100.0))
        found.submit(waiting("pair", 2), Asker())
        assert bool(found.decide(100.0).rooms) is moves


def test_of_many_that_could_be_preempted_those_are_looked_at_where_the_least_is_missing() -> None:
    """Forty lose less work, but each shares its node with a run that stays."""
    nodes = tuple(Node(f"n{number}", 2 * GPU) for number in range(40))
    found = scheduler(nodes=(*nodes, Node("z", 2 * GPU)))
    for node in nodes:
        stays = held(replace(waiting(f"stays on {node.name}", priority=25), restartable=False), node.name)
        found.hold(stays), found.hold(held(waiting(f"cheap on {node.name}", priority=25), node.name, saved_at=99.0))
    found.hold(held(waiting("dear", priority=25), "z", saved_at=20.0))
    found.submit(waiting("urgent", 2, priority=75), Asker())
    (room,) = found.decide(100.0).rooms
    assert ([each.run for each in room.preempts], room.placement) == (["dear"], (Slot("z", 2),))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(Queue("full"), ["a"]), (Queue("full", max=GPU), []), (Queue("full", max_of=(("t4", GPU),)), ["b"])],
    ids=["none", "of all", "of a type"],
)
def test_what_was_promised_is_not_given_beyond_a_limit_that_was_reached_meanwhile(
    limit: Queue, expected: list[str]
) -> None:
    found = scheduler(limit, Queue("q"), nodes=(replace(A, gpu_type="T4"), replace(B, gpu_type="H100")))
    lease = held(waiting("was preempted"), "a")
    found.hold(lease)
    found.submit(waiting("urgent", queue="full"), Asker())
    found.promise("urgent", ((0, "a"),))
    found.hold(held(waiting("overtook", queue="full"), "a"))
    found.drop(lease.lease)
    assert [slot.node for grant in found.decide(100.0).grants for slot in grant.placement] == expected
