"""Warm leases in the policy: who may have kept GPUs, and when they are given up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from explained import explain
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import Slot
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.scheduler import Decisions, Scheduler
from jupyter_gpu_release.scheduling.state import ClusterSnapshot
from jupyter_gpu_release.scheduling.warm_leases import Asker, HeldLease, KeepTerms
from jupyter_gpu_release.scheduling.workload import GPU, Node, Run

NOW = 100.0
POLICY = Policy(actions=("allocate", "backfill"), run_order=("age",))
DEFAULT = Queue("default")
NODE = Node("a", 4 * GPU, "NVIDIA H100", cpus=8)
SLOW = Node("b", 4 * GPU, "NVIDIA T4", cpus=8)

#: a run and who asks for it
Asked = tuple[Run, Asker]


def kept(name: str, gpus: int = 1, node: str = "a", **facts: Any) -> HeldLease:
    """Kept by ann's kernel k1, for another 30 s, whoever waits."""
    terms = KeepTerms(facts.pop("session", "k1"), facts.pop("until_s", NOW + 30), facts.pop("auto", False))
    run = to_run(f"run of {name}", ResourceAsk(gpus=gpus), queue="default", user=facts.pop("user", "ann"))
    return HeldLease(name, run, (Slot(node, gpus),), terms=terms, **facts)


def run(name: str, gpus: int = 1, user: str = "bob", session: str = "k2", **facts: Any) -> Asked:
    """Of bob's kernel k2."""
    ask = ResourceAsk(gpus=gpus, **facts.pop("ask", {}))
    asked = to_run(name, ask, queue="default", user=user, submitted_at=NOW + int(name[1:]) / 1e3)
    return asked, Asker(session, **facts)


def anns(name: str, gpus: int = 1, **facts: Any) -> Asked:
    return run(name, gpus, **{"user": "ann", "session": "k1", **facts})


def scheduler(
    queue: Iterable[Asked],
    leases: Iterable[HeldLease],
    free: Mapping[str, int],
    nodes: tuple[Node, ...] = (NODE,),
    rules: Queue = DEFAULT,
) -> Scheduler:
    """Of each node so much is free, and the rest is used by others."""
    made = Scheduler(ClusterSnapshot(nodes, (rules,), (), POLICY))
    held = {node.name: node.gpus // GPU - free.get(node.name, 0) for node in nodes}
    for lease in leases:
        made.hold(lease)
        for slot in lease.slots:
            held[slot.node] -= slot.gpus
    for name, gpus in held.items():
        made.state.nodes.set_outside(name, gpus * GPU)
    for asked, asker in queue:
        made.submit(asked, asker)
    return made


@dataclass
class Case:
    """What is there, and what must come of it: run → lease that it gets ("": free GPUs, None: it waits)."""

    id: str
    warm: tuple[HeldLease, ...]
    queue: tuple[Asked, ...]
    runs: dict[str, str | None]
    released: set[str] = field(default_factory=set)
    nodes: tuple[Node, ...] = (NODE,)
    free: int = 0
    away: str = ""
    paused: tuple[str, ...] = ()


def coming(gpus: int) -> HeldLease:
    """Being given back."""
    return HeldLease("old", to_run("over", ResourceAsk(gpus=gpus), queue="default"), (Slot("a", gpus),), is_coming=True)


CASES = [
    Case("own cell", (kept("w1"),), (anns("r1"),), {"r1": "w1"}),
    Case("own cell, ahead of the queue", (kept("w1"),), (run("r1", 2), anns("r2")), {"r1": None, "r2": "w1"}),
    Case(
        "only what it keeps",
        (kept("w1"),),
        (run("r1", 2), anns("r2"), anns("r3")),
        {"r1": None, "r2": "w1", "r3": None},
    ),
    Case("own cell, though others' GPUs are free", (kept("w1"),), (anns("r1"),), {"r1": "w1"}, free=1),
    Case(
        "the one that ends first",
        (kept("w1", until_s=NOW + 9), kept("w2", until_s=NOW + 5)),
        (anns("r1"),),
        {"r1": "w2"},
    ),
    Case("another kernel of hers takes it", (kept("w1"),), (anns("r1", session="k3"),), {"r1": "w1"}),
    Case(
        "a detached run of another kernel of hers can wait",
        (kept("w1"),),
        (anns("r1", session="k3", detached=True),),
        {"r1": None},
    ),
    Case("a detached run, auto", (kept("w1", auto=True),), (anns("r1", session="k3", detached=True),), {"r1": "w1"}),
    Case(
        "a detached run of the kernel itself",
        (kept("w1"),),
        (anns("r1", 2, detached=True),),
        {"r1": None},
        {"w1"},
        free=1,
    ),
    Case(
        "own gang on any nodes", (kept("w1", 4),), (anns("r1", 4, ask={"ranks": 4, "any_nodes": True}),), {"r1": "w1"}
    ),
    Case("another user waits", (kept("w1"),), (run("r1"),), {"r1": None}),
    Case("another user waits: auto", (kept("w1", auto=True),), (run("r1"),), {"r1": "w1"}),
    Case("auto is for who came first", (kept("w1", auto=True),), (run("r1"), anns("r2")), {"r1": "w1", "r2": None}),
    Case(
        "own cell and others, enough for all",
        (kept("w1", auto=True),),
        (run("r1"), anns("r2")),
        {"r1": "", "r2": "w1"},
        free=2,
    ),
    Case("auto stays while nobody needs it", (kept("w1", auto=True),), (run("r1"),), {"r1": ""}, free=1),
    Case("auto, another shape", (kept("w1", 3, auto=True),), (run("r1", 2),), {"r1": None}, {"w1"}),
    Case("auto adds to what is free", (kept("w1", auto=True),), (run("r1", 2),), {"r1": None}, {"w1"}, free=1),
    Case(
        "no more than is needed",
        (kept("w1", 2, auto=True), kept("w2", 1, auto=True)),
        (run("r1", 3),),
        {"r1": None},
        {"w1"},
        free=1,
    ),
    Case(
        "ones own before others' auto",
        (kept("w1", 2), kept("w2", 2, user="eve", session="k9", auto=True)),
        (anns("r1", 3),),
        {"r1": None},
        {"w1"},
        free=1,
    ),
    Case("her 2 do not wait for her own 1", (kept("w1"),), (anns("r1", 2),), {"r1": None}, {"w1"}, free=1),
    Case(
        "the head alone takes back",
        (kept("w1", auto=True),),
        (run("r1", 2), run("r2")),
        {"r1": None, "r2": None},
        {"w1"},
    ),
    Case(
        "not enough: the nearest node's",
        (kept("w1", auto=True), kept("w2", 2, "b", auto=True)),
        (run("r1", 4),),
        {"r1": None},
        {"w2"},
        (NODE, SLOW),
    ),
    Case(
        "a GPU that does not suit helps nobody",
        (kept("w1", node="b", auto=True),),
        (run("r1", ask={"gpu_type": "h100"}),),
        {"r1": None},
        nodes=(NODE, SLOW),
    ),
    Case(
        "own cell asks for another type",
        (kept("w1", node="b"),),
        (anns("r1", ask={"gpu_type": "h100"}),),
        {"r1": None},
        nodes=(NODE, SLOW),
    ),
    Case(
        "own cell asks for the same type",
        (kept("w1"),),
        (anns("r1", ask={"gpu_type": "h100", "ranks": 1}),),
        {"r1": "w1"},
    ),
    Case("its node's agent is away", (kept("w1"),), (anns("r1"),), {"r1": None}, away="a"),
    Case("what is coming back is enough", (kept("w1", 2, auto=True), coming(1)), (run("r1", 1),), {"r1": None}),
    Case("a CPU stage takes nothing back", (kept("w1", auto=True),), (run("r1", 0, ask={"cpus": 9.0}),), {"r1": None}),
    Case("paused, others' are not taken back", (kept("w1", auto=True),), (run("r1"),), {"r1": None}, paused=("r1",)),
    Case("paused, its own kernel's is not taken", (kept("w1"),), (anns("r1"),), {"r1": None}, paused=("r1",)),
    Case("time over", (kept("w1", until_s=NOW),), (anns("r1"),), {"r1": None}, {"w1"}),
    Case("time over, nobody waits", (kept("w1", until_s=NOW - 1), kept("w2")), (), {}, {"w1"}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_becomes_of_kept_gpus(case: Case) -> None:
    asked = scheduler(case.queue, case.warm, {"a": case.free}, case.nodes)
    if case.away:
        asked.state.nodes.set_outside(case.away, 0, "its agent is away")
    decided = asked.decide(NOW, case.paused)
    assert decided == asked.decide(NOW, case.paused), "a decision changes nothing"
    waits = dict.fromkeys(wait.run for wait in decided.waits)
    assert {grant.run: grant.lease for grant in decided.grants} | waits == case.runs
    assert {release.lease for release in decided.releases} == case.released
    slots = {lease.lease: lease.slots for lease in case.warm}
    assert all(grant.placement == slots[grant.lease] for grant in decided.grants if grant.lease)


H100 = {"ask": {"gpu_type": "h100"}}
BOTH = (NODE, SLOW)
#: a case, and what at most may be held: by all in the queue, by each of its users
CAPPED = [
    (
        Case(
            "own cell, while another waits for other GPUs",
            (kept("w1", node="b", auto=True),),
            (run("r1", **H100), anns("r2")),
            {"r1": None, "r2": "w1"},
            nodes=BOTH,
        ),
        None,
        1,
    ),
    (Case("another's next in a full queue", (kept("w1", auto=True),), (run("r1"),), {"r1": "w1"}, free=3), 1, None),
    (
        Case("another's 2 in a full queue", (kept("w1", auto=True),), (run("r1", 2),), {"r1": None}, {"w1"}, free=3),
        2,
        None,
    ),
    (Case("own 2 beside ones own 1", (kept("w1"),), (anns("r1", 2),), {"r1": None}, {"w1"}, free=3), None, 2),
    (
        Case("own cell on another type", (kept("w1", node="b"),), (anns("r1", **H100),), {"r1": None}, {"w1"}, BOTH, 1),
        None,
        1,
    ),
    (
        Case(
            "nobody's while it is what runs that fills the queue",
            (kept("w1", auto=True), replace(kept("w2"), terms=None)),
            (run("r1", 2),),
            {"r1": None},
            free=2,
        ),
        2,
        None,
    ),
    (
        Case(
            "two of one user, each within the limit",
            (kept("w1", 2, auto=True),),
            (run("r1", 2, **H100), run("r2")),
            {"r1": None, "r2": ""},
            nodes=BOTH,
        ),
        None,
        2,
    ),
    (
        Case(
            "own lease first, a start within the limit next",
            (kept("w1"),),
            (anns("r1"), run("r2")),
            {"r1": "w1", "r2": ""},
            free=1,
        ),
        2,
        None,
    ),
]


@pytest.mark.parametrize(("case", "most", "each"), CAPPED, ids=lambda case: getattr(case, "id", ""))
def test_kept_gpus_keep_nobody_from_starting_where_a_queue_has_a_limit(
    case: Case, most: int | None, each: int | None
) -> None:
    rules = Queue("default", max=most and most * GPU, max_gpus_per_user=each and each * GPU)
    free = {"a": case.free, "b": 1 if case.id.startswith("two") else 0}
    decided = scheduler(case.queue, case.warm, free, case.nodes, rules).decide(NOW)
    waits = dict.fromkeys(wait.run for wait in decided.waits)
    assert {grant.run: grant.lease for grant in decided.grants} | waits == case.runs
    assert {release.lease for release in decided.releases} == case.released


def outcome(decided: Decisions) -> str:
    return "granted" if decided.grants else "expired" if decided.expired else "waits"


def test_who_may_not_wait_gets_what_is_given_up_for_it_within_two_seconds() -> None:
    impatient = run("r1", 2, wait_s=0.0)
    given_up = scheduler([impatient], [kept("w1", 3, auto=True)], {}).decide(NOW + 0.1)
    assert (outcome(given_up), [release.lease for release in given_up.releases]) == ("waits", ["w1"])
    back = scheduler([impatient], [coming(3)], {})
    assert outcome(back.decide(NOW + 1.9)) == "waits"
    assert outcome(back.decide(NOW + 2.1)) == "expired"
    assert outcome(scheduler([impatient], [kept("w1", 3)], {}).decide(NOW + 0.1)) == "expired"


def test_the_end_of_what_is_kept_is_a_time_to_decide_at() -> None:
    assert scheduler([], [kept("w1"), kept("w2", until_s=NOW + 9)], {}).decide(NOW).next_end_s == NOW + 9


def test_the_reason_says_what_is_kept() -> None:
    decided = scheduler([run("r1", 3)], [kept("w1", 2)], {"a": 1}).decide(NOW)
    assert [explain(wait) for wait in decided.waits] == [
        "next in the queue: needs 3 GPUs, 1 of 4 is free, 2 are kept for other cells"
    ]


def test_what_a_kernel_keeps_may_not_lift_a_run_over_the_limit_of_another_queue() -> None:
    made = scheduler([], [kept("w1")], {})
    full = Scheduler(ClusterSnapshot((NODE,), (Queue("default"), Queue("closed", max=0)), (), POLICY))
    asked, asker = anns("r1")
    for each, queue in ((made, "default"), (full, "closed")):
        each.hold(kept("w1"))
        each.submit(replace(asked, queue=queue), asker)
    assert (outcome(made.decide(NOW)), outcome(full.decide(NOW))) == ("granted", "waits")


warm_strategy = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from("ab"), st.sampled_from("123"), st.floats(90, 130), st.booleans()),
    max_size=5,
)
queue_strategy = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("123"), st.none() | st.floats(0, 10)), max_size=8
)


@settings(deadline=None)
@given(warm_strategy, queue_strategy, st.integers(0, 4), st.integers(0, 4))
def test_whatever_comes_the_rules_hold(leases, asks, free_a, free_b) -> None:
    warm = tuple(
        kept(f"w{i}", gpus, node, user=f"u{who}", session=f"k{who}", until_s=until, auto=auto)
        for i, (gpus, node, who, until, auto) in enumerate(leases)
    )
    queue = tuple(
        run(f"r{i}", gpus, user=f"u{who}", session=f"k{who}", wait_s=wait) for i, (gpus, who, wait) in enumerate(asks)
    )
    nodes = (replace(NODE, gpus=24 * GPU), replace(SLOW, gpus=24 * GPU))
    decided = scheduler(queue, warm, {"a": free_a, "b": free_b}, nodes).decide(NOW + 0.01)
    releases = [release.lease for release in decided.releases]
    handed = [grant.lease for grant in decided.grants if grant.lease]
    assert len(set(releases + handed)) == len(releases + handed)  # each lease has one fate
    told = [each.run for each in (*decided.waits, *decided.expired, *decided.grants)]
    assert sorted(told) == sorted(asked.run for asked, _ in queue)
    for name, free in (("a", free_a), ("b", free_b)):  # nobody gets a kept GPU but by its lease
        placed = [slot for grant in decided.grants if not grant.lease for slot in grant.placement if slot.node == name]
        assert sum(slot.gpus for slot in placed) <= free
    by_name = {lease.lease: lease for lease in warm}
    asked = {each.run: each for each, _ in queue}
    for name in releases:
        lease = by_name[name]
        may_go = any(lease.terms.auto or each.user == lease.run.user for each in asked.values())
        assert may_go or lease.terms.until_s <= NOW + 0.01
    for grant in decided.grants:
        if grant.lease:
            lease, one = by_name[grant.lease], asked[grant.run]
            assert lease.terms.until_s > NOW
            assert lease.terms.auto or one.user == lease.run.user
            assert lease.gpus * GPU == one.gpus
