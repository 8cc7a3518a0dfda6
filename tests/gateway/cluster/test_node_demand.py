"""What Ray's autoscaler is asked for, what it is heard to say, and what a waiting run is told of that."""

from __future__ import annotations

import json

import pytest
from explained import explain

from jupyter_gpu_release.gateway.actor import pause_s
from jupyter_gpu_release.gateway.cluster.autoscaler import AutoscalerReport, _first_kind, bundles_of
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import NeverFits, NodeWanted, NoRoom, Wait
from jupyter_gpu_release.scheduling.resource_requests import to_run


@pytest.mark.parametrize(
    ("ask", "bundles"),
    [
        (ResourceAsk(gpus=4), [{"GPU": 4.0}]),
        (ResourceAsk(gpus=4, ranks=4, nodes=2), [{"GPU": 2.0}] * 2),
        (ResourceAsk(gpus=4, ranks=2, any_nodes=True), [{"GPU": 2.0}] * 2),
        (ResourceAsk(gpus=1, gpu_type="a100", cpus=8), [{"GPU": 1.0, "CPU": 8.0, "accelerator_type:A100": 0.001}]),
        (ResourceAsk(gpus=1, gpu_type="rtx-0815", memory_bytes=1 << 30), [{"GPU": 1.0, "memory": float(1 << 30)}]),
        (ResourceAsk(gpus=0, cpus=3), [{"CPU": 3.0}]),
    ],
)
def test_a_run_asks_for_all_that_it_has_on_each_node(ask: ResourceAsk, bundles: list[dict[str, float]]) -> None:
    assert bundles_of(to_run("r", ask)) == bundles


def test_rays_first_autoscaler_is_told_from_a_cluster_that_nobody_scales() -> None:
    nobody = {"autoscaler_report": {"active_nodes": {"node_ab12": 1}, "idle_nodes": None, "pending_nodes": []}}
    assert _first_kind(nobody) == AutoscalerReport()
    somebody = {
        "autoscaler_report": {
            "active_nodes": {"ray.head.default": 1},
            "idle_nodes": {"gpu": 2},
            "pending_launches": {"gpu": 2},
            "pending_nodes": [["10.0.0.4", "gpu", "setting-up"]],
        }
    }
    assert _first_kind(json.loads(json.dumps(somebody))) == AutoscalerReport(scales=True, starting=3)
    assert _first_kind({}) == AutoscalerReport()


def test_who_waits_is_told_what_the_autoscaler_does() -> None:
    room, never = NoRoom(1, 4000, 1000, 8000), NeverFits("asks for 4 GPUs, the cluster has 0")

    def says(lacks: NoRoom | NeverFits, answer: str) -> str:
        return explain(Wait("r", "research", 2, NodeWanted(lacks, answer)))  # type: ignore[arg-type]

    assert says(room, "starting") == (
        "2nd in research: waiting for a node that Ray is starting (needs 4 GPUs, 1 of 8 is free)"
    )
    assert says(room, "asked") == "2nd in research: needs 4 GPUs, 1 of 8 is free; Ray is asked for a node"
    assert says(never, "starting") == "waiting for a node that Ray is starting (asks for 4 GPUs, the cluster has 0)"
    assert says(never, "refused").endswith("; Ray's autoscaler can start no node that fits, or no more of them")


def test_the_nodes_are_looked_at_often_enough_to_notice_within_two_seconds_who_comes_or_goes() -> None:
    assert [pause_s(nodes, 3.0) for nodes in (1, 100, 200, 1000)] == [1.0, 1.0, 2.0, 3.0]
    assert pause_s(1, 0.3) == 0.3
