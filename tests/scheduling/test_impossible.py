"""Asks that no empty cluster could grant are said at once, with what there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu_release.errors import ImpossibleAskError
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.plugins.node_filters import impossible
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.start_estimates.nearest import possible_ask
from jupyter_gpu_release.scheduling.workload import GPU, Node

NODES = (
    Node(
        "a",
        gpus=2 * GPU,
        cpus=8,
        memory_bytes=32 << 30,
        gpu_type="NVIDIA H100 PCIe",
        gpu_memory_bytes=80 << 30,
        labels=(("zone", "eu"),),
    ),
    Node("b", gpus=2 * GPU, cpus=64, memory_bytes=16 << 30, gpu_type="Tesla T4", gpu_memory_bytes=16 << 30),
)


@pytest.mark.parametrize(
    "ask",
    [
        ResourceAsk(gpus=2),
        ResourceAsk(gpus=0),
        ResourceAsk(gpus=0, ranks=64),
        ResourceAsk(gpus=0, ranks=16, nodes=2),
        ResourceAsk(gpus=1, gpu_type="h100", min_gpu_memory_bytes=80 << 30, cpus=8, labels={"zone": "eu"}),
        ResourceAsk(gpus=1, gpu_type="T4", cpus=64.0),
        ResourceAsk(gpus=1, memory_bytes=32 << 30),
    ],
    ids=str,
)
def test_possible(ask: ResourceAsk) -> None:
    assert impossible(to_run("r", ask), NODES) is None


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (ResourceAsk(gpus=8), "asks for 8 GPUs, the cluster has 4"),
        (ResourceAsk(gpus=3), "asks for 3 GPUs on one node, the largest node has 2 (of 4 in the cluster)"),
        (ResourceAsk(gpus=1, gpu_type="A100"), "GPUs of type A100; no node of the cluster offers that (GPUs: NVIDIA"),
        (ResourceAsk(gpus=1, gpu_type="t4", min_gpu_memory_bytes=40 << 30), "40 GiB"),
        (ResourceAsk(gpus=1, cpus=65.0), "65 CPUs on one node"),
        (
            ResourceAsk(gpus=0, ranks=20_000),
            "20000 CPUs on one node; no node of the cluster offers that (most CPUs: 64)",
        ),
        (ResourceAsk(gpus=1, memory_bytes=64 << 30), "64 GiB of memory"),
        (ResourceAsk(gpus=1, labels={"zone": "us"}), "the label zone=us"),
        (ResourceAsk(gpus=0, gpu_type="h100"), "but for 0 of them"),
    ],
    ids=str,
)
def test_impossible(ask: ResourceAsk, words: str) -> None:
    reason = impossible(to_run("r", ask), NODES)
    assert reason is not None
    assert words in reason


def test_no_nodes() -> None:
    assert impossible(to_run("r", ResourceAsk()), ()) == "the cluster has no nodes"


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (ResourceAsk(gpus=8), "the nearest that fits: --gpus 2"),
        (ResourceAsk(gpus=1_000_000), "the nearest that fits: --gpus 2"),
        (ResourceAsk(gpus=4, ranks=4), "the nearest that fits: --nodes 2"),
        (ResourceAsk(gpus=8, ranks=8), "the nearest that fits: --gpus 2 --ranks 2"),
        (ResourceAsk(gpus=12, ranks=6, nodes=2), "the nearest that fits: --gpus 4 --ranks 2"),
        (ResourceAsk(gpus=8, ranks=2, nodes=2), "the nearest that fits: --gpus 4"),
        (ResourceAsk(gpus=6, ranks=3, nodes=3), "the nearest that fits: --gpus 2 --ranks 1 --nodes 1"),
        (ResourceAsk(gpus=4, ranks=4, nodes=4), "the nearest that fits: --nodes 2"),
        (ResourceAsk(gpus=9, ranks=9, any_nodes=True, min_gpus=8), "the nearest that fits: --min-gpus 4"),
        (ResourceAsk(gpus=9, ranks=3, any_nodes=True, min_gpus=6), "the nearest that fits: --gpus 6 --min-gpus 4"),
        (ResourceAsk(gpus=2, gpu_type="a100"), "the nearest that fits: --gpu-type h100"),
        (ResourceAsk(gpus=1, memory_bytes=64 << 30), "ask for what the cluster has: `jupyter gpu status`"),
        (ResourceAsk(gpus=0, ranks=20_000), "ask for what the cluster has: `jupyter gpu status`"),
    ],
    ids=str,
)
def test_the_nearest_that_fits_is_named(ask: ResourceAsk, hint: str) -> None:
    with pytest.raises(ImpossibleAskError) as refused:
        possible_ask(ask, to_run("r", ask), NODES, ["h100", "t4"])
    assert refused.value.hint == hint


def test_of_several_spreads_that_fit_the_nearest_is_named() -> None:
    ask = ResourceAsk(gpus=8, ranks=8, nodes=8)
    with pytest.raises(ImpossibleAskError) as refused:
        possible_ask(ask, to_run("r", ask), [replace(NODES[1], name=name, gpus=4 * GPU) for name in "abcd"])
    assert refused.value.hint == "the nearest that fits: --nodes 4"


@pytest.mark.parametrize(
    ("ask", "spread"),
    [
        (ResourceAsk(gpus=2, ranks=2, may_spread=True), False),
        (ResourceAsk(gpus=3, ranks=3, may_spread=True), True),
        (ResourceAsk(gpus=0, ranks=70, may_spread=True), True),
        (ResourceAsk(gpus=3, ranks=3, any_nodes=True), True),
    ],
    ids=str,
)
def test_ranks_are_spread_where_no_one_node_is_large_enough(ask: ResourceAsk, spread: bool) -> None:
    assert possible_ask(ask, to_run("r", ask), NODES).any_nodes is spread


def test_more_ranks_than_all_nodes_take_are_too_many() -> None:
    ask = ResourceAsk(gpus=4, ranks=2, any_nodes=True, gpu_type="h100")
    with pytest.raises(ImpossibleAskError) as refused:
        possible_ask(ask, to_run("r", ask), NODES, ["h100", "t4"])
    assert refused.value.message == "asks for 2 ranks, the nodes that offer this have room for 1"
    assert refused.value.hint == "the nearest that fits: --gpus 2 --ranks 1 --nodes 1"
