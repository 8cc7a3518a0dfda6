"""The scheduler as the gateway asks it: gangs whole, nobody waits for what they do not need, ``--wait``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from explained import explain
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import Expire, Grant, NeverFits, Promise, Slot
from jupyter_gpu_release.scheduling.placement import suits
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.resource_requests import ranks_on, to_run
from jupyter_gpu_release.scheduling.scheduler import Decisions, Scheduler
from jupyter_gpu_release.scheduling.state import ClusterSnapshot
from jupyter_gpu_release.scheduling.warm_leases import Asker, HeldLease
from jupyter_gpu_release.scheduling.workload import GPU, Node, Run

A = Node("a", 4 * GPU, "NVIDIA H100 80GB HBM3", cpus=8)
B = Node("b", 2 * GPU, "NVIDIA T4", cpus=8)
POLICY = Policy(actions=("allocate", "backfill"), run_order=("priority", "age"))


@dataclass
class Cluster:
    """A scheduler over a few nodes, of which some GPUs and CPUs are taken by leases whose end nobody knows."""

    nodes: tuple[Node, ...] = (A,)
    taken: dict[str, int] = field(default_factory=dict)
    cpus: dict[str, int] = field(default_factory=dict)
    policy: Policy = POLICY
    asked: int = 0

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(ClusterSnapshot(self.nodes, (Queue("default"),), (), self.policy))
        for name, gpus in self.taken.items():
            self.hold(f"other-{name}", (Slot(name, gpus),))
        for name, cpus in self.cpus.items():
            self.hold(f"stage-{name}", (Slot(name, 0, cpus),))

    def hold(self, lease: str, slots: tuple[Slot, ...], **terms: Any) -> None:
        ask = ResourceAsk(gpus=sum(slot.gpus for slot in slots), nodes=len(slots), cpus=float(slots[0].cpus))
        self.scheduler.hold(HeldLease(lease, to_run(f"run of {lease}", ask, queue="default"), slots, **terms))

    def ask(self, name: str, gpus: int = 1, *, wait_s: float | None = None, **ask: Any) -> Run:
        self.asked += 1
        run = to_run(
            name, ResourceAsk(gpus=gpus, **ask), queue="default", user="ann", submitted_at=100.0 + self.asked / 1e3
        )
        self.scheduler.submit(run, Asker(wait_s=wait_s))
        return run

    def decide(self, now_s: float = 101.0) -> Decisions:
        before = self.scheduler.decide(now_s)
        assert before == self.scheduler.decide(now_s), "a decision changes nothing"
        return before

    def words(self, now_s: float = 101.0) -> dict[str, str]:
        """For whoever waits the reason, for the others where they start."""
        decided = self.decide(now_s)
        words = {grant.run: " ".join(slot.node for slot in grant.placement) for grant in decided.grants}
        return words | {wait.run: explain(wait) for wait in decided.waits}


def test_nothing_to_decide() -> None:
    assert Cluster().decide() == Decisions()


def test_runs_that_are_alike_start_by_age() -> None:
    cluster = Cluster(taken={"a": 3})
    cluster.ask("r1"), cluster.ask("r2")
    found = cluster.decide()
    assert found.grants == [Grant("r1", (Slot("a", 1),))]
    assert [(wait.run, wait.position, explain(wait)) for wait in found.waits] == [
        ("r2", 1, "next in the queue: needs 1 GPU, 0 of 4 are free")
    ]


def test_who_would_delay_the_run_ahead_waits() -> None:
    cluster = Cluster(taken={"a": 2})
    cluster.ask("r1", 3), cluster.ask("r2", 1), cluster.ask("r3", 4)
    assert cluster.words() == {
        "r1": "next in the queue: needs 3 GPUs, 2 of 4 are free",
        "r2": "2nd in the queue: what is free is kept for ann's run ahead of it, which would start later",
        "r3": "3rd in the queue: needs 4 GPUs, 2 of 4 are free",
    }


def test_a_cell_is_not_torn_over_nodes_and_a_gang_has_the_same_on_each() -> None:
    cluster = Cluster((A, B), {"a": 3, "b": 1})
    cluster.ask("r1", 2)
    assert cluster.words() == {"r1": "next in the queue: needs 2 GPUs, 2 of 6 are free (not together)"}
    cluster = Cluster((A, B))
    cluster.ask("r1", 4, nodes=2, ranks=4)
    assert cluster.decide().grants == [Grant("r1", (Slot("b", 2), Slot("a", 2)))]


def test_a_gang_on_any_nodes_is_placed_whole_also_unevenly() -> None:
    cluster = Cluster((replace(A, name="c"), A), {"a": 1})
    run = cluster.ask("r1", 7, ranks=7, any_nodes=True)
    [grant] = cluster.decide().grants
    assert sorted((slot.node, slot.gpus) for slot in grant.placement) == [("a", 3), ("c", 4)]
    ask = ResourceAsk(gpus=7, ranks=7, any_nodes=True)
    assert [ranks_on(ask, slot) for slot in grant.placement] == [slot.gpus for slot in grant.placement]
    cluster.scheduler.remove("r1")
    cluster.scheduler.hold(HeldLease("l1", run, grant.placement))
    cluster.ask("r2", 1)
    assert cluster.words() == {"r2": "next in the queue: needs 1 GPU, 0 of 8 are free"}
    cluster = Cluster(taken={"a": 1})
    cluster.ask("r1", 4, ranks=4, any_nodes=True)
    assert cluster.words() == {"r1": "next in the queue: needs 4 × 1 GPU together, 3 of 4 are free"}


def test_a_gang_stays_within_the_rack_that_it_fills_best() -> None:
    racks = {"a": ("r1", 3), "b": ("r1", 3), "c": ("r2", 2), "d": ("r2", 2)}
    cluster = Cluster(
        tuple(Node(name, gpus * GPU, labels=(("topology", rack),)) for name, (rack, gpus) in racks.items())
    )
    cluster.ask("r1", 4, ranks=4, any_nodes=True)
    assert cluster.words() == {"r1": "c d"}


def test_nodes_in_use_are_filled_first() -> None:
    cluster = Cluster((A, B), {"b": 1})
    cluster.ask("r1")
    assert cluster.words() == {"r1": "b"}


def test_properties_of_the_node_count() -> None:
    cluster = Cluster((A, B), {"a": 4})
    cluster.ask("r1", gpu_type="h100")
    assert cluster.words() == {"r1": "next in the queue: needs 1 GPU, 0 of 4 are free"}


def test_a_run_without_gpus_takes_cpus() -> None:
    cluster = Cluster(taken={"a": 4}, cpus={"a": 6})
    cluster.ask("r1", 0), cluster.ask("r2", 0, cpus=1.5)
    found = cluster.decide()
    assert found.grants == [Grant("r1", (Slot("a", 0, 1),))]
    assert explain(found.waits[0]) == "next in the queue: needs 2 CPUs, 1 free"


def test_small_cpu_stages_do_not_starve_a_large_one() -> None:
    cluster = Cluster(cpus={"a": 4})
    cluster.ask("r1", 0, cpus=6.0), cluster.ask("r2", 0)
    assert cluster.decide().grants == []


def test_who_cannot_use_what_those_ahead_wait_for_goes_on() -> None:
    cluster = Cluster((A, B), {"a": 3})
    cluster.ask("r1", 4, gpu_type="h100")
    cluster.ask("r2", 0)
    cluster.ask("r3", 1, gpu_type="t4")
    cluster.ask("r4", 1, gpu_type="h100")
    cluster.ask("r5", 2, gpu_type="t4")
    found = cluster.words()
    assert (found["r2"], found["r3"]) == ("b", "b")
    assert found["r1"] == "next in the queue: needs 4 GPUs, 1 of 4 is free"
    assert found["r4"].startswith("2nd in the queue: what is free is kept for ann's run")
    assert found["r5"] == "3rd in the queue: needs 2 GPUs, 1 of 2 is free"


def test_nobody_waits_for_a_gang_whose_node_died_and_it_comes_back_to_its_place() -> None:
    def ask(cluster: Cluster) -> Cluster:
        cluster.ask("gang", 8, nodes=2, ranks=2), cluster.ask("small"), cluster.ask("stage", 0)
        return cluster

    gone = ask(Cluster()).words()
    assert (gone["small"], gone["stage"]) == ("a", "a")
    assert gone["gang"] == "waits for a node that fits, others may go first: asks for 8 GPUs, the cluster has 4"
    back = ask(Cluster((A, replace(A, name="c")), {"c": 1})).words()
    assert back["stage"] == "a"
    assert back["gang"].startswith("next in the queue: needs 2 × 4 GPUs together")
    assert back["small"].startswith("2nd in the queue: what is free is kept for ann's run")
    both = ask(Cluster((A, replace(A, name="c")))).words()
    assert both["gang"] == "a c"


def test_a_gang_waits_for_its_node_that_is_expected_back_not_for_one_in_lasting_trouble() -> None:
    cluster = Cluster((A, B), {"b": 1})
    cluster.ask("r1", 4, nodes=2, ranks=2)
    cluster.ask("r2", 2)
    cluster.scheduler.state.nodes.set_outside("a", 0, "the node agent on host-a is being restarted")
    words = cluster.words()
    assert words["r1"] == "next in the queue: the node agent on host-a is being restarted"
    assert words["r2"].startswith("2nd in the queue: ")
    cluster.scheduler.state.nodes.set_outside("a", 0)
    assert cluster.words()["r1"] == "next in the queue: needs 2 × 2 GPUs together, 5 of 6 are free (not together)"

    small = replace(B, name="c", gpus=GPU, schedulable=False, reason="host-c does not answer")
    broken = Cluster((replace(A, schedulable=False, reason="host-a does not have the store"), B, small))
    broken.ask("r1", 4, nodes=2, ranks=2)
    broken.ask("r2", 2)
    assert broken.words() == {
        "r2": "b",
        "r1": "waits for a node that fits, others may go first: host-a does not have the store",
    }


def test_gpus_of_other_programs_are_not_given_away() -> None:
    cluster = Cluster()
    cluster.scheduler.state.nodes.set_outside("a", 3 * GPU)
    cluster.ask("r1", 2)
    assert cluster.words() == {"r1": "next in the queue: needs 2 GPUs, 1 of 4 is free"}
    cluster.scheduler.state.nodes.set_outside("a", 0)
    assert cluster.words() == {"r1": "a"}


def test_gpus_that_are_given_back_are_promised_to_the_next_run() -> None:
    cluster = Cluster()
    cluster.hold("ends", (Slot("a", 3),), is_coming=True)
    cluster.hold("goes-on", (Slot("a", 1),))
    cluster.ask("r1", 3), cluster.ask("r2", 3)
    found = cluster.decide()
    assert (found.grants, found.promises) == ([], [Promise("r1", (Slot("a", 3),))])
    assert [explain(wait) for wait in found.waits] == [
        "next in the queue: its GPUs are being given back",
        "2nd in the queue: needs 3 GPUs, 0 of 4 are free",
    ]
    cluster.scheduler.drop("ends")
    assert cluster.words()["r1"] == "a"


def test_a_paused_run_keeps_its_place_and_what_it_would_get() -> None:
    cluster = Cluster(taken={"a": 1})
    for name, gpus in (("r1", 2), ("r2", 1), ("r3", 1)):
        cluster.ask(name, gpus, wait_s=0.0 if name == "r1" else None)
    found = cluster.scheduler.decide(101.0, {"r1"})
    assert [grant.run for grant in found.grants] == ["r2"]
    assert [wait.run for wait in found.waits] == ["r3"]
    assert found.expired == []


def test_a_run_that_waits_again_does_not_have_what_it_had() -> None:
    cluster = Cluster()
    run = cluster.ask("r1", 3)
    cluster.scheduler.remove("r1")
    cluster.scheduler.hold(HeldLease("l1", run, (Slot("a", 3),)))
    cluster.scheduler.submit(run, Asker())
    assert explain(cluster.decide().waits[0]) == "next in the queue: needs 3 GPUs, 1 of 4 is free"
    cluster.scheduler.drop("l1")
    assert cluster.words() == {"r1": "a"}


def test_the_wait_limit() -> None:
    cluster = Cluster(taken={"a": 4})
    cluster.ask("r1", wait_s=60.0), cluster.ask("r2")
    assert cluster.decide().next_end_s == 160.001
    assert [wait.position for wait in cluster.decide(160.0).waits] == [1, 2]
    found = cluster.decide(160.1)
    assert found.expired == [Expire("r1", "no GPU within 1 min (--wait)")]
    assert [(wait.run, wait.position) for wait in found.waits] == [("r2", 1)]


def test_nobody_looks_again_and_again_at_a_wait_that_is_over() -> None:
    """A run that is paused would be granted; one that gets what is coming has two seconds more."""
    cluster = Cluster()
    cluster.ask("r1", wait_s=0.0)
    assert cluster.scheduler.decide(101.0, {"r1"}).next_end_s is None
    lease = HeldLease("l1", replace(cluster.ask("r2", 4), run="over"), (Slot("a", 4),), is_coming=True)
    cluster.scheduler.remove("r2")
    cluster.scheduler.hold(lease)
    assert cluster.decide(101.0).next_end_s == pytest.approx(102.001)


def test_no_waiting_at_all_is_still_granted_at_once() -> None:
    """``--wait 0``: now or never; now comes first."""
    free, busy = Cluster(), Cluster(taken={"a": 4})
    for cluster in (free, busy):
        cluster.ask("r1", wait_s=0.0)
    assert [grant.run for grant in free.decide().grants] == ["r1"]
    assert busy.decide().expired == [Expire("r1", "no GPU is free now, and it may not wait (--wait 0)")]


_KINDS = st.sampled_from(["", "h100", "t4"])
_NODES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 16), _KINDS), max_size=5)
_ASKS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(0, 10), _KINDS, st.integers(1, 2)), max_size=12)


@settings(deadline=None)
@given(_NODES, _ASKS, st.floats(100, 120), st.booleans())
def test_whatever_comes_the_rules_hold(nodes, asks, now_s, keeps_order) -> None:
    found = tuple(Node(f"n{i}", (free + held) * GPU, kind, cpus=16) for i, (free, held, _, kind) in enumerate(nodes))
    cluster = Cluster(
        found,
        {f"n{i}": held for i, (_, held, _, _) in enumerate(nodes)},
        {f"n{i}": 16 - cpus for i, (*_, cpus, _) in enumerate(nodes)},
        replace(POLICY, actions=POLICY.actions if keeps_order else ("allocate",)),
    )
    runs = {}
    for i, (gpus, wait_s, kind, spread) in enumerate(asks):
        runs[f"r{i}"] = cluster.ask(
            f"r{i}", gpus * spread, wait_s=wait_s, gpu_type=kind or None, nodes=spread, ranks=spread
        )
    decided = cluster.decide(now_s)
    grants = {grant.run: grant for grant in decided.grants}
    told = [*grants, *(wait.run for wait in decided.waits), *(expiry.run for expiry in decided.expired)]
    assert sorted(told) == sorted(runs)  # nobody is forgotten
    for run, grant in grants.items():  # whole, and on nodes that suit
        assert [slot.gpus * GPU for slot in grant.placement] == [runs[run].gpus_per_rank] * len(runs[run].ranks)
        assert len({slot.node for slot in grant.placement}) == runs[run].nodes
        assert all(suits(runs[run], cluster.scheduler.state.nodes.by_name[slot.node]) for slot in grant.placement)
    for name, (free, _, cpus, _) in zip((node.name for node in found), nodes, strict=True):
        slots = [slot for grant in grants.values() for slot in grant.placement if slot.node == name]
        assert sum(slot.gpus for slot in slots) <= free
        assert sum(slot.cpus for slot in slots) <= cpus
    assert [wait.position for wait in decided.waits] == list(range(1, len(decided.waits) + 1))
    for wait in decided.waits:
        suited = [node for node in found if suits(runs[wait.run], node)]
        assert isinstance(wait.cause, NeverFits) == (len(suited) < runs[wait.run].nodes)
    if not decided.grants and decided.waits:  # what could start alone is behind somebody
        first = decided.waits[0]
        assert isinstance(first.cause, NeverFits) or runs[first.run].gpus_per_rank + runs[first.run].cpus_per_rank
