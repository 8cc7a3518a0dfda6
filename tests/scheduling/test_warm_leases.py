"""Warm leases in the policy: who may have kept GPUs, and when they are given up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.policy import decide
from jupyter_gpu_release.scheduling.snapshot import (
    Expire,
    Grant,
    NodeState,
    QueuedRun,
    Release,
    Slot,
    Snapshot,
    Wait,
    WarmLease,
)

NOW = 100.0
NODE = NodeState("a", gpus_total=4, gpus_free=0, cpus_total=8, cpus_free=8, gpu_name="NVIDIA H100")
SLOW = NodeState("b", gpus_total=4, gpus_free=0, cpus_total=8, cpus_free=8, gpu_name="NVIDIA T4")


def kept(name: str, gpus: int = 1, node: str = "a", **facts: object) -> WarmLease:
    """Kept by ann's kernel k1, for another 30 s, whoever waits."""
    wanted = {"user": "ann", "session": "k1", "until_s": NOW + 30, **facts}
    return WarmLease(name, (Slot(node, gpus),), ResourceAsk(gpus=gpus), **wanted)


def run(name: str, gpus: int = 1, **facts: object) -> QueuedRun:
    """Of bob's kernel k2."""
    ask = ResourceAsk(gpus=gpus, **facts.pop("ask", {}))
    wanted = {"user": "bob", "session": "k2", **facts}
    return QueuedRun(name, ask, int(name[1:]), submitted_at=NOW, **wanted)


def anns(name: str, gpus: int = 1, **facts: object) -> QueuedRun:
    return run(name, gpus, **{"user": "ann", "session": "k1", **facts})


@dataclass
class Case:
    """What is there, and what must come of it: run → lease that it gets ("": free GPUs, None: it waits)."""

    id: str
    warm: tuple[WarmLease, ...]
    queue: tuple[QueuedRun, ...]
    runs: dict[str, str | None]
    released: set[str] = field(default_factory=set)
    nodes: tuple[NodeState, ...] = (NODE,)


FREE_1 = (replace(NODE, gpus_free=1),)
CASES = [
    Case("own cell", (kept("w1"),), (anns("r1"),), {"r1": "w1"}),
    Case("own cell, ahead of the queue", (kept("w1"),), (run("r1", 2), anns("r2")), {"r1": None, "r2": "w1"}),
    Case("only what it keeps", (kept("w1"),), (run("r1", 2), anns("r2"), anns("r3")),
         {"r1": None, "r2": "w1", "r3": None}),
    Case("own cell, though others' GPUs are free", (kept("w1"),), (anns("r1"),), {"r1": "w1"}, nodes=FREE_1),
    Case("the one that ends first", (kept("w1", until_s=NOW + 9), kept("w2", until_s=NOW + 5)), (anns("r1"),),
         {"r1": "w2"}),
    Case("another kernel of hers takes it", (kept("w1"),), (anns("r1", session="k3"),), {"r1": "w1"}),
    Case("a detached run of another kernel of hers can wait", (kept("w1"),), (anns("r1", session="k3", detached=True),),
         {"r1": None}),
    Case("a detached run, auto", (kept("w1", auto=True),), (anns("r1", session="k3", detached=True),), {"r1": "w1"}),
    Case("a detached run of the kernel itself", (kept("w1"),), (anns("r1", 2, detached=True),), {"r1": None}, {"w1"},
         FREE_1),
    Case("another user waits", (kept("w1"),), (run("r1"),), {"r1": None}),
    Case("another user waits: auto", (kept("w1", auto=True),), (run("r1"),), {"r1": "w1"}),
    Case("auto is for who came first", (kept("w1", auto=True),), (run("r1"), anns("r2")), {"r1": "w1", "r2": None}),
    Case("auto stays while nobody needs it", (kept("w1", auto=True),), (run("r1"),), {"r1": ""}, nodes=FREE_1),
    Case("auto, another shape", (kept("w1", 3, auto=True),), (run("r1", 2),), {"r1": None}, {"w1"}),
    Case("auto adds to what is free", (kept("w1", auto=True),), (run("r1", 2),), {"r1": None}, {"w1"}, FREE_1),
    Case("no more than is needed", (kept("w1", 2, auto=True), kept("w2", 1, auto=True)), (run("r1", 3),),
         {"r1": None}, {"w1"}, FREE_1),
    Case("ones own before others' auto", (kept("w1", 2), kept("w2", 2, user="eve", session="k9", auto=True)),
         (anns("r1", 3),), {"r1": None}, {"w1"}, FREE_1),
    Case("her 2 do not wait for her own 1", (kept("w1"),), (anns("r1", 2),), {"r1": None}, {"w1"}, FREE_1),
    Case("the head alone takes back", (kept("w1", auto=True),), (run("r1", 2), run("r2")), {"r1": None, "r2": None},
         {"w1"}),
    Case("not enough: the nearest node's", (kept("w1", auto=True), kept("w2", 2, "b", auto=True)), (run("r1", 4),),
         {"r1": None}, {"w2"}, (NODE, SLOW)),
    Case("a GPU that does not suit helps nobody", (kept("w1", node="b", auto=True),),
         (run("r1", ask={"gpu_type": "h100"}),), {"r1": None}, nodes=(NODE, SLOW)),
    Case("own cell asks for another type", (kept("w1", node="b"),), (anns("r1", ask={"gpu_type": "h100"}),),
         {"r1": None}, nodes=(NODE, SLOW)),
    Case("own cell asks for the same type", (kept("w1"),), (anns("r1", ask={"gpu_type": "h100", "ranks": 1}),),
         {"r1": "w1"}),
    Case("its node's agent is away", (kept("w1"),), (anns("r1"),), {"r1": None},
         nodes=(replace(NODE, schedulable=False),)),
    Case("what is coming back is enough", (kept("w1", 2, auto=True),), (run("r1", 1),), {"r1": None},
         nodes=(replace(NODE, gpus_coming=1),)),
    Case("a CPU stage takes nothing back", (kept("w1", auto=True),), (run("r1", 0),), {"r1": None},
         nodes=(replace(NODE, cpus_free=0),)),
    Case("time over", (kept("w1", until_s=NOW),), (anns("r1"),), {"r1": None}, {"w1"}),
    Case("time over, nobody waits", (kept("w1", until_s=NOW - 1), kept("w2")), (), {}, {"w1"}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_becomes_of_kept_gpus(case: Case) -> None:
    decisions = decide(Snapshot(case.nodes, case.queue, case.warm), NOW)
    grants = {decision.run: decision for decision in decisions if isinstance(decision, Grant)}
    waits = {decision.run: None for decision in decisions if isinstance(decision, Wait)}
    assert {run: grant.lease for run, grant in grants.items()} | waits == case.runs
    assert {decision.lease for decision in decisions if isinstance(decision, Release)} == case.released
    slots = {lease.lease: lease.slots for lease in case.warm}
    assert all(grant.placement == slots[grant.lease] for grant in grants.values() if grant.lease)


def test_who_may_not_wait_gets_what_is_given_up_for_it_within_two_seconds() -> None:
    impatient = run("r1", 2, wait_s=0.0)
    lease = kept("w1", 3, auto=True)
    assert [type(found) for found in decide(Snapshot((NODE,), (impatient,), (lease,)), NOW)] == [Release, Wait]
    coming = Snapshot((replace(NODE, gpus_coming=3),), (impatient,))
    assert [type(found) for found in decide(coming, NOW + 1.9)] == [Wait]
    assert [type(found) for found in decide(coming, NOW + 2.1)] == [Expire]
    assert [type(found) for found in decide(Snapshot((NODE,), (impatient,), (kept("w1", 3),)), NOW)] == [Expire]


def test_the_reason_says_what_is_kept() -> None:
    snapshot = Snapshot(FREE_1, (run("r1", 3),), (kept("w1", 2),))
    assert decide(snapshot, NOW) == [
        Wait("r1", 1, "next in the queue: needs 3 GPUs, 1 of 4 is free, 2 are kept for other cells")
    ]


warm_strategy = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from("ab"), st.sampled_from("123"), st.floats(90, 130), st.booleans()),
    max_size=5,
)
queue_strategy = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("123"), st.none() | st.floats(0, 10)), max_size=8
)


@given(warm_strategy, queue_strategy, st.integers(0, 4), st.integers(0, 4))
def test_whatever_comes_the_rules_hold(leases, asks, free_a, free_b) -> None:
    warm = tuple(
        kept(f"w{i}", gpus, node, user=f"u{who}", session=f"k{who}", until_s=until, auto=auto)
        for i, (gpus, node, who, until, auto) in enumerate(leases)
    )
    queue = tuple(
        run(f"r{i}", gpus, user=f"u{who}", session=f"k{who}", wait_s=wait)
        for i, (gpus, who, wait) in enumerate(asks)
    )  # fmt: skip
    nodes = (replace(NODE, gpus_free=free_a, gpus_total=16), replace(SLOW, gpus_free=free_b, gpus_total=16))
    decisions = decide(Snapshot(nodes, queue, warm), NOW)
    releases = [decision.lease for decision in decisions if isinstance(decision, Release)]
    grants = [decision for decision in decisions if isinstance(decision, Grant)]
    handed = [grant.lease for grant in grants if grant.lease]
    assert len(set(releases + handed)) == len(releases + handed)  # each lease has one fate
    others = [decision.run for decision in decisions if isinstance(decision, Wait | Expire)]
    assert sorted([*others, *(grant.run for grant in grants)]) == sorted(each.run for each in queue)
    for node in nodes:  # nobody gets a kept GPU but by its lease
        taken = [slot.gpus for grant in grants if not grant.lease for slot in grant.placement if slot.node == node.node]
        assert sum(taken) <= node.gpus_free
    by_name = {lease.lease: lease for lease in warm}
    asked = {each.run: each for each in queue}
    assert all(by_name[lease].until_s <= NOW for lease in releases if not _may_go(by_name[lease], queue))
    for grant in grants:
        if grant.lease:
            lease, one = by_name[grant.lease], asked[grant.run]
            assert lease.until_s > NOW
            assert lease.auto or one.user == lease.user
            assert sum(slot.gpus for slot in lease.slots) == one.ask.gpus


def _may_go(lease: WarmLease, queue: tuple[QueuedRun, ...]) -> bool:
    return any(lease.auto or each.user == lease.user for each in queue)
