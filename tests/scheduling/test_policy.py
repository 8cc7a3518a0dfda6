"""The policy: first come, first served, gangs whole or not at all, nobody takes what those ahead wait for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.constraints import suits
from jupyter_gpu_release.scheduling.policy import decide
from jupyter_gpu_release.scheduling.snapshot import Expire, Grant, NodeState, QueuedRun, Slot, Snapshot, Wait

A = NodeState("a", "host-a", gpus_total=4, gpus_free=4, cpus_total=8, cpus_free=8, gpu_name="NVIDIA H100 80GB HBM3")
B = NodeState("b", "host-b", gpus_total=2, gpus_free=2, cpus_total=8, cpus_free=8, gpu_name="NVIDIA T4")


def queued(name: str, gpus: int = 1, ordinal: int = 0, **facts: object) -> QueuedRun:
    ask = ResourceAsk(gpus=gpus, **facts.pop("ask", {}))
    return QueuedRun(name, ask, ordinal or int(name[1:]), submitted_at=100.0, **facts)


def by_run(snapshot: Snapshot, now_s: float = 100.0) -> dict[str, object]:
    decisions = decide(snapshot, now_s)
    assert len({decision.run for decision in decisions}) == len(decisions)
    return {decision.run: decision for decision in decisions}


def test_nothing_to_decide() -> None:
    assert decide(Snapshot((A,), ()), 0.0) == []


def test_runs_are_granted_in_order_of_submission_not_of_the_queue() -> None:
    node = replace(A, gpus_free=1)
    found = by_run(Snapshot((node,), (queued("r2"), queued("r1"))))
    assert found["r1"] == Grant("r1", (Slot("a", 1),))
    assert found["r2"] == Wait("r2", 1, "next in the queue: needs 1 GPU, 0 of 4 are free")


def test_the_head_blocks_what_would_fit() -> None:
    node = replace(A, gpus_free=2)
    found = by_run(Snapshot((node,), (queued("r1", 3), queued("r2", 1), queued("r3", 1))))
    assert found["r1"] == Wait("r1", 1, "next in the queue: needs 3 GPUs, 2 of 4 are free")
    assert found["r2"] == Wait("r2", 2, "2nd in the queue, behind 1 other run")
    assert found["r3"] == Wait("r3", 3, "3rd in the queue, behind 2 other runs")


def test_a_gang_is_not_torn_over_nodes() -> None:
    nodes = (replace(A, gpus_free=1), replace(B, gpus_free=1))
    assert by_run(Snapshot(nodes, (queued("r1", 2),)))["r1"] == Wait(
        "r1", 1, "next in the queue: needs 2 GPUs, 2 of 6 are free (not on one node)"
    )


def test_nodes_in_use_are_filled_first() -> None:
    nodes = (A, replace(B, gpus_free=1))
    assert by_run(Snapshot(nodes, (queued("r1"),)))["r1"] == Grant("r1", (Slot("b", 1),))


def test_properties_of_the_node_count() -> None:
    asks = {"gpu_type": "h100"}
    assert by_run(Snapshot((A, B), (queued("r1", ask=asks),)))["r1"] == Grant("r1", (Slot("a", 1),))
    busy = replace(A, gpus_free=0)
    assert by_run(Snapshot((busy, B), (queued("r1", ask=asks),)))["r1"] == Wait(
        "r1", 1, "next in the queue: needs 1 GPU, 0 of 4 are free"
    )


def test_a_node_without_an_agent_takes_nothing_and_says_why() -> None:
    node = replace(A, schedulable=False, reason="its node agent is still starting")
    assert by_run(Snapshot((node,), (queued("r1"),)))["r1"] == Wait(
        "r1", 1, "next in the queue: its node agent is still starting"
    )
    assert by_run(Snapshot((), (queued("r1"),)))["r1"] == Wait(
        "r1", 1, "others go first until a node that fits is up: the cluster has no nodes"
    )


def test_a_run_without_gpus_takes_cpus() -> None:
    node = replace(A, gpus_free=0, cpus_free=2)
    found = by_run(Snapshot((node,), (queued("r1", 0), queued("r2", 0, ask={"cpus": 1.5}))))
    assert found["r1"] == Grant("r1", (Slot("a", 0, 1),))
    assert found["r2"] == Wait("r2", 1, "next in the queue: needs 2 CPUs, 1 free")


def test_who_cannot_use_what_those_ahead_wait_for_goes_on() -> None:
    full = replace(A, gpus_free=1)
    h100, t4 = {"gpu_type": "h100"}, {"gpu_type": "t4"}
    runs = (
        queued("r1", 4, ask=h100),
        queued("r2", 0),
        queued("r3", 1, ask=t4),
        queued("r4", 1, ask=h100),
        queued("r5", 2, ask=t4),
        queued("r6", 1),
    )
    found = by_run(Snapshot((full, B), runs))
    assert found == {
        "r1": Wait("r1", 1, "next in the queue: needs 4 GPUs, 1 of 4 is free"),
        "r2": Grant("r2", (Slot("a", 0, 1),)),
        "r3": Grant("r3", (Slot("b", 1),)),
        "r4": Wait("r4", 2, "2nd in the queue, behind 1 other run"),
        "r5": Wait("r5", 3, "3rd in the queue, the next for nodes that fit it: needs 2 GPUs, 1 of 2 is free"),
        "r6": Wait("r6", 4, "4th in the queue, behind 3 other runs"),  # both of its nodes are waited for
    }


def test_a_run_whose_node_is_gone_steps_aside_and_comes_back_to_its_place() -> None:
    first, second = queued("r1", 4), queued("r2", 2)
    gone = by_run(Snapshot((replace(B, gpus_free=1),), (first, second)))
    assert gone["r2"].position == 1
    assert gone["r1"] == Wait(
        "r1",
        2,
        "others go first until a node that fits is up: asks for 4 GPUs, the cluster has 2",
    )
    assert isinstance(by_run(Snapshot((B,), (first, second)))["r2"], Grant)
    back = by_run(Snapshot((replace(A, gpus_free=3), replace(B, gpus_free=1)), (first, second)))
    assert [back["r1"].position, back["r2"].position] == [1, 2]


def test_a_gang_waits_for_its_node_that_is_expected_back_not_for_one_in_lasting_trouble() -> None:
    gang, small = queued("r1", 4, ask={"nodes": 2, "ranks": 2}), queued("r2", 2)
    away = replace(A, schedulable=False, reason="the node agent on host-a is being restarted")
    waits = by_run(Snapshot((away, B), (gang, small)))
    assert waits["r1"] == Wait("r1", 1, "next in the queue: the node agent on host-a is being restarted")
    assert waits["r2"].position == 2
    broken = replace(away, expected=False, reason="host-a does not have the store")
    goes_on = by_run(Snapshot((broken, B), (gang, small)))
    assert goes_on["r2"] == Grant("r2", (Slot("b", 2),))
    assert goes_on["r1"] == Wait(
        "r1", 1, "others go first until a node that fits is up: host-a does not have the store"
    )


def test_the_wait_limit() -> None:
    node = replace(A, gpus_free=0)
    runs = (queued("r1", wait_s=60.0), queued("r2"))
    assert by_run(Snapshot((node,), runs), now_s=159.9)["r1"].position == 1
    found = by_run(Snapshot((node,), runs), now_s=160.0)
    assert found["r1"] == Expire("r1", "no GPU within 1 min (--wait)")
    assert found["r2"].position == 1


def test_no_waiting_at_all_is_still_granted_at_once() -> None:
    """``--wait 0``: now or never; now comes first."""
    free = by_run(Snapshot((A,), (queued("r1", wait_s=0.0),)))
    assert isinstance(free["r1"], Grant)
    busy = by_run(Snapshot((replace(A, gpus_free=0),), (queued("r1", wait_s=0.0),)))
    assert isinstance(busy["r1"], Expire)


_KINDS = st.sampled_from(["", "h100", "t4"])
nodes_strategy = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 16), _KINDS).map(
        lambda t: NodeState("", gpus_total=t[0] + t[1], gpus_free=t[0], cpus_total=16, cpus_free=t[2], gpu_name=t[3])
    ),
    max_size=5,
).map(lambda nodes: tuple(replace(node, node=f"n{i}") for i, node in enumerate(nodes)))
queue_strategy = st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(0, 10), _KINDS), max_size=12).map(
    lambda asks: tuple(
        QueuedRun(f"r{i}", ResourceAsk(gpus=gpus, gpu_type=kind or None), i, submitted_at=0.0, wait_s=wait)
        for i, (gpus, wait, kind) in enumerate(asks)
    )
)


@given(nodes_strategy, queue_strategy, st.floats(0, 20))
def test_whatever_comes_the_rules_hold(nodes, queue, now_s) -> None:
    decisions = decide(Snapshot(nodes, queue), now_s)
    assert sorted(decision.run for decision in decisions) == sorted(run.run for run in queue)
    grants = {decision.run: decision for decision in decisions if isinstance(decision, Grant)}
    waits = [decision for decision in decisions if isinstance(decision, Wait)]
    asks = {run.run: run for run in queue}
    for run, grant in grants.items():
        assert sum(slot.gpus for slot in grant.placement) == asks[run].ask.gpus  # whole
    for node in nodes:
        slots = [slot for grant in grants.values() for slot in grant.placement if slot.node == node.node]
        assert sum(slot.gpus for slot in slots) <= node.gpus_free
        assert sum(slot.cpus for slot in slots) <= node.cpus_free
    assert [wait.position for wait in waits] == list(range(1, len(waits) + 1))
    for wait in waits:  # nobody takes what a run ahead of it waits for
        first = asks[wait.run]
        wanted = {node.node for node in nodes if suits(first.ask, node)}
        for run, grant in grants.items():
            if asks[run].ordinal > first.ordinal and bool(asks[run].ask.gpus) == bool(first.ask.gpus):
                assert not wanted & {slot.node for slot in grant.placement}
        if not wanted:
            assert wait.reason.startswith("others go first")
