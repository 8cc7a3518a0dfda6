"""Asks of users as runs of the policy: properties, CPUs, and what a lease must be to be theirs."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import Slot
from jupyter_gpu_release.scheduling.resource_requests import (
    cpus_needed,
    is_shaped_like,
    least_parts,
    needs,
    parts_on,
    ranks_on,
    reshaped,
    slots,
    to_run,
)
from jupyter_gpu_release.scheduling.workload import GPU


def test_a_node_must_have_all_that_was_asked_for_and_no_less() -> None:
    ask = ResourceAsk(
        gpus=1, gpu_type="h100", min_gpu_memory_bytes=40, cpus=2.5, memory_bytes=9, labels={"b": "1", "a": "2"}
    )
    found = needs(ask)
    assert (found.gpu_type, found.min_gpu_memory_bytes, found.cpus, found.memory_bytes) == ("h100", 40, 3, 9)
    assert found.labels == (("a", "2"), ("b", "1"))
    part = ResourceAsk(gpus=0.25, gpu_memory_bytes=20, min_gpu_memory_bytes=40)
    assert needs(part).min_gpu_memory_bytes == 80, "a quarter of the GPU has the 20"


@pytest.mark.parametrize(
    ("ask", "cpus"),
    [
        (ResourceAsk(gpus=1, cpus=8.0), 0),
        (ResourceAsk(gpus=0), 1),
        (ResourceAsk(gpus=0, cpus=2.5), 3),
        (ResourceAsk(gpus=0, ranks=4), 4),
        (ResourceAsk(gpus=0, ranks=4, nodes=2), 2),
        (ResourceAsk(gpus=0, ranks=4, any_nodes=True), 1),
    ],
)
def test_only_a_run_without_gpus_reserves_cpus_one_a_process_at_least(ask: ResourceAsk, cpus: int) -> None:
    assert cpus_needed(ask) == to_run("r", ask).cpus_per_rank == cpus


@pytest.mark.parametrize(
    ("ask", "least"),
    [
        (ResourceAsk(gpus=8, ranks=8, any_nodes=True), 8),
        (ResourceAsk(gpus=8, ranks=8, any_nodes=True, min_gpus=2), 2),
        (ResourceAsk(gpus=8, ranks=4, any_nodes=True, min_gpus=2), 1),
        (ResourceAsk(gpus=8, ranks=4, any_nodes=True, min_gpus=99), 4),
        (ResourceAsk(gpus=8, ranks=4, nodes=2), 2),
        (ResourceAsk(gpus=0, ranks=4, any_nodes=True), 4),
    ],
)
def test_what_has_to_start_together(ask: ResourceAsk, least: int) -> None:
    assert least_parts(ask) == to_run("r", ask).min_ranks == least


def test_a_lease_has_a_slot_for_each_node_with_all_that_is_there() -> None:
    ask = ResourceAsk(gpus=6, ranks=3, any_nodes=True)
    spread = to_run("r", ask)
    assert slots(spread, [(0, "a"), (1, "b"), (2, "a")]) == (Slot("a", 4), Slot("b", 2))
    assert (parts_on(spread, Slot("a", 4)), ranks_on(ask, Slot("a", 4))) == (2, 2)
    stage = to_run("r", ResourceAsk(gpus=0, cpus=3.0))
    assert slots(stage, [(0, "a")]) == (Slot("a", 0, 3),)
    assert parts_on(stage, Slot("a", 0, 6)) == 2
    assert ranks_on(ResourceAsk(gpus=4, ranks=4, nodes=2), Slot("a", 2)) == 2
    part = to_run("r", ResourceAsk(gpus=0.25))
    assert slots(part, [(0, "a")]) == (Slot("a", 0.25),)


def test_which_leases_are_what_a_run_asks_for() -> None:
    whole, spread = to_run("r", ResourceAsk(gpus=2)), to_run("r", ResourceAsk(gpus=4, ranks=2, any_nodes=True))
    assert is_shaped_like(whole, [Slot("a", 2)])
    for other in ([Slot("a", 1), Slot("b", 1)], [Slot("a", 3)], [Slot("a", 2, 4)], []):
        assert not is_shaped_like(whole, other)
    assert is_shaped_like(spread, [Slot("a", 2), Slot("b", 2)])
    assert is_shaped_like(spread, [Slot("a", 4)])
    for other in ([Slot("a", 1), Slot("b", 3)], [Slot("a", 2)], []):
        assert not is_shaped_like(spread, other), "a rank's GPUs are on one node"
    stage = to_run("r", ResourceAsk(gpus=0))
    assert is_shaped_like(stage, [Slot("a", 0, 1)])
    assert not is_shaped_like(stage, [Slot("a", 0)])


def test_another_size_changes_nothing_else() -> None:
    ask = ResourceAsk(gpus=4, ranks=4, any_nodes=True, min_gpus=2, gpu_type="h100")
    run = to_run("r", ask, queue="q", user="ann", priority=75, submitted_at=5.0, limit_s=9.0, restartable=True)
    found = reshaped(run, ResourceAsk(gpus=2, ranks=1))
    assert (len(found.ranks), found.gpus_per_rank, found.min_ranks, found.nodes) == (1, 2 * GPU, 1, 1)
    assert (found.queue, found.user, found.priority, found.submitted_at) == ("q", "ann", 75, 5.0)
    assert (found.limit_s, found.restartable, found.needs) == (9.0, True, run.needs)
