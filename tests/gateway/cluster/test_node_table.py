"""Nodes as the gateway knows them: what Ray lists, what their agents say, and why one takes no runs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_gpu_release.errors import ClusterError, ImpossibleAskError
from jupyter_gpu_release.gateway.cluster.nodes import NodeTable, away_reason, coarse, node_of, scheduled_node
from jupyter_gpu_release.gateway.dispatch.parts import with_part
from jupyter_gpu_release.host.slurm import JOB_LABEL
from jupyter_gpu_release.protocol.node import GpuInfo, NodeInfo
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.scheduling.plugins.node_filters import gpu_type
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.workload import GPU


def _entry(node: str = "n", alive: bool = True, **resources: float) -> dict[str, Any]:
    return {
        "NodeID": node,
        "NodeManagerHostname": f"host-{node}",
        "Alive": alive,
        "Resources": {"GPU": 2.0, "CPU": 8.0, "memory": 100.0, **resources},
    }


def _info(*gpus: GpuInfo, **facts: Any) -> NodeInfo:
    return NodeInfo("n", "host-n", "life", "3.11", "1", gpus=list(gpus), **facts)


class _Listener:
    def __init__(self) -> None:
        self.told = 0

    def on_nodes_changed(self) -> None:
        self.told += 1


@pytest.fixture
def listener() -> _Listener:
    return _Listener()


@pytest.fixture
def table(listener: _Listener) -> NodeTable:
    return NodeTable("/run", listener)


def test_a_node_is_what_ray_lists() -> None:
    listed = _entry(**{"accelerator_type:H100": 1.0, "node:__internal_head__": 1.0})
    listed |= {"NodeManagerAddress": "10.0.0.1", "NodeManagerPort": 7, "ObjectManagerPort": 0, "Labels": {"zone": "eu"}}
    node = node_of(listed)
    assert (node.host, node.gpus, node.cpus, node.memory_bytes) == ("host-n", 2, 8, 100)
    assert (node.accelerator, node.is_head, node.labels, node.address) == ("H100", True, {"zone": "eu"}, "10.0.0.1")
    assert node.ray_ports == {7: "Ray's node manager"}
    assert not node_of(_entry()).is_head


def test_nodes_come_die_and_are_forgotten(table: NodeTable, listener: _Listener) -> None:
    assert table.refresh([_entry("a"), _entry("b"), _entry("dead", alive=False)]) == []
    assert ([node.node for node in table.alive()], listener.told) == (["a", "b"], 0)
    (died,) = table.refresh([_entry("a"), _entry("b", alive=False)])
    assert (died.node, listener.told, table.totals()) == ("b", 1, {"a": 2})
    assert table.refresh([_entry("a"), _entry("b", alive=False)]) == []
    assert table.find("b") is died
    table.refresh([_entry("a")])
    assert (table.find("b"), listener.told) == (None, 1)


def test_only_a_node_with_an_agent_can_be_called(table: NodeTable) -> None:
    table.refresh([_entry()])
    (node,) = table.alive()
    for name in ("n", "unknown"):
        with pytest.raises(ClusterError, match="has no agent"):
            table.agent(name)
    node.agent = SimpleNamespace()
    assert table.agent("n")
    table.on_agent_died("n")
    with pytest.raises(ClusterError, match="has no agent"):
        table.agent("n")


def test_silence_counts_from_its_beginning_and_only_that_of_the_present_life(table: NodeTable) -> None:
    table.refresh([_entry()])
    (node,) = table.alive()
    node.info = _info()
    table.on_agent_unreachable("n", "life before", "it does not answer")
    assert (node.reachable, node.silent_since_s) == (True, None)
    table.on_agent_unreachable("n", "life", "it does not answer")
    since_s = node.silent_since_s
    assert (node.reachable, node.problem) == (False, "it does not answer")
    assert since_s is not None
    table.note_silent("n", "still not")
    assert (node.silent_since_s, node.problem) == (since_s, "still not")
    table.note_silent("unknown", "nobody")


def test_what_is_drained_is_so_on_nodes_that_come_later_and_until_it_is_resumed(table: NodeTable) -> None:
    table.note_drained({"host-n": "by ann", "host-n:1": "GPU 1 by ann", "host-m:0": "GPU 0 by bob", "host-n0:0": "no"})
    table.refresh([_entry("n"), _entry("m")])
    n, m = table.alive()
    assert (n.drained, n.aside, m.drained, m.aside) == ("by ann", {"1": "GPU 1 by ann"}, "", {"0": "GPU 0 by bob"})
    assert (table.is_aside("n", ["0"]), table.is_aside("n", ["0", "1"]), table.is_aside("gone", ["1"])) == (
        False,
        True,
        False,
    )
    n.info = _info(GpuInfo("GPU-a"), GpuInfo("GPU-b"))
    n.unwell_gpus = {"GPU-b": "lost", "GPU-of another": "lost"}
    assert n.aside == {"GPU-b": "lost"}, "others of the machine are none of its GPUs"
    table.note_drained({})
    assert (n.drained, n.drained_gpus) == ("", {})


def test_why_a_node_takes_no_runs(table: NodeTable) -> None:
    table.refresh([_entry()])
    (node,) = table.alive()
    assert away_reason(node) == "the node agent on host-n is still starting"
    node.info = _info()
    assert away_reason(node) == ""
    node.taking = "GPU 1 of host-n is being set aside"
    assert away_reason(node) == node.taking
    node.drained = "by ann"
    assert away_reason(node) == "by ann"
    node.taking = node.drained = ""
    node.is_asleep = True
    assert "was idle" in away_reason(node)
    node.is_asleep, node.reachable = False, False
    assert away_reason(node) == "the node host-n does not answer, or its agent is being restarted"
    node.is_lost = True
    found = scheduled_node(node)
    assert (away_reason(node), found.schedulable, found.reason) == ("", False, "the node host-n does not answer")
    node.is_lost, node.reachable, node.is_leaving = False, True, True
    assert scheduled_node(node).reason == "the node host-n is about to end"
    node.is_leaving, node.info = False, _info(trouble="the store is not there")
    assert (away_reason(node), scheduled_node(node).reason) == ("", "host-n: the store is not there")
    node.info, node.drained, node.labels = _info(), "by ann", {JOB_LABEL: "7"}
    assert (scheduled_node(node).schedulable, scheduled_node(node).reason) == (False, "by ann"), "another one comes"


def test_a_run_may_count_on_the_least_that_a_node_has(table: NodeTable) -> None:
    table.refresh([_entry(**{"accelerator_type:T4": 1.0})])
    (node,) = table.alive()
    found = scheduled_node(node)
    assert (found.gpus, found.gpu_type, found.gpu_memory_bytes, found.memory_bytes) == (2 * GPU, "T4", 0, 100)
    assert (found.knows_attempts, found.left_s) == (True, math.inf)
    gpus = (GpuInfo("0", "NVIDIA H100", memory_bytes=80), GpuInfo("1", "NVIDIA H100", memory_bytes=40), GpuInfo("2"))
    node.info = _info(*gpus, memory_bytes=64)
    found = scheduled_node(node)
    assert (found.gpu_type, found.gpu_memory_bytes, found.memory_bytes) == ("NVIDIA H100", 40, 64)
    assert not found.knows_attempts, "its agent is from before attempts"


def test_mig_instances_are_gpus_of_their_type(table: NodeTable) -> None:
    """Also beside the whole GPU's type, which Ray tells."""
    table.refresh([_entry(**{"accelerator_type:H100": 1.0})])
    (node,) = table.alive()
    node.info = _info(*(GpuInfo(f"MIG-{at}", "H100 MIG 1g.10gb", memory_bytes=10 << 30, slice_of="0") for at in "ab"))
    asked = ResourceAsk(gpu_type="1g.10gb")
    assert gpu_type(to_run("r", asked), scheduled_node(node)) is None
    half = RunRequest("r", "s", msgspec.structs.replace(asked, gpus=0.5), b"")
    assert with_part(half, [scheduled_node(node)]).ask.gpus == 0.5
    too_small = RunRequest("r", "s", msgspec.structs.replace(asked, gpus=0.05), b"")
    with pytest.raises(ImpossibleAskError, match=r"0\.05 of a GPU with 10 GiB is 512 MiB, of which CUDA itself takes"):
        with_part(too_small, [scheduled_node(node)])


@pytest.mark.parametrize(
    ("left", "counted"),
    [(math.inf, math.inf), (3700.0, 3600.0), (1801.0, 1800.0), (1799.0, 1740.0), (59.0, 0.0), (-5.0, 0.0)],
)
def test_time_that_is_left_is_rounded_down(left: float, counted: float) -> None:
    assert coarse(left) == counted
