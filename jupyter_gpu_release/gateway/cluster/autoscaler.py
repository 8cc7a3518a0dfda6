"""Ray's autoscaler, as far as it can be heard and asked: whether there is one, what it starts, what it was asked for.

A request is a placement group that no node which is up may take (its bundles exclude them by their ids), so it takes
nobody's GPUs; the autoscaler counts it as demand. On the nodes that come for it, it keeps GPUs (so Ray does not end
them as idle) until their agents are there. It belongs to the gateway's actor, and Ray removes it with that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.core.generated.autoscaler_pb2 import AutoscalingState, ClusterResourceState, GetClusterStatusReply
from ray.experimental.internal_kv import _internal_kv_get, internal_kv_get_gcs_client
from ray.util import accelerators
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from ...scheduling.workload import GPU, Run

_ANSWER_S = 5.0
#: where the autoscaler of Ray's first kind leaves its report
_FIRST_KIND = "__autoscaling_status"
#: such a cluster's nodes have types of their own where nobody scales them
_NOBODYS = "node_"
#: a little of what marks a node's type of GPU
_TOUCH = 0.001
_GPU_TYPES = sorted(value for name, value in vars(accelerators).items() if name.isupper() and isinstance(value, str))


@dataclass(frozen=True)
class AutoscalerReport:
    """Facts of one look. ``starting``: nodes on their way; ``refused``: groups (ids) that it can do nothing for."""

    scales: bool = False
    starting: int = 0
    refused: frozenset[str] = frozenset()
    #: nodes that it is about to end
    draining: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Request:
    """A group that asks for nodes: for which run, and the nodes that it has got."""

    run: str
    group: str
    nodes: frozenset[str] = frozenset()


def read_autoscaler() -> AutoscalerReport:
    """Look, in a thread."""
    reply = GetClusterStatusReply()
    reply.ParseFromString(internal_kv_get_gcs_client().get_cluster_status(timeout_s=_ANSWER_S))
    state, cluster = reply.autoscaling_state, reply.cluster_resource_state
    if state.autoscaler_state_version:
        return _second_kind(state, cluster)
    told = _internal_kv_get(_FIRST_KIND)
    return _first_kind(json.loads(told)) if told else AutoscalerReport()


def _second_kind(state: AutoscalingState, cluster: ClusterResourceState) -> AutoscalerReport:
    return AutoscalerReport(
        scales=any(node.ray_node_type_name for node in cluster.node_states),
        starting=sum(asked.count for asked in state.pending_instance_requests) + len(state.pending_instances),
        refused=frozenset(gang.details.partition(":")[0] for gang in state.infeasible_gang_resource_requests),
        draining=frozenset(node.node_id.hex() for node in cluster.node_states if node.status == _DRAINING),
    )


_DRAINING = 4  # NodeStatus.DRAINING


def _first_kind(told: Mapping[str, Any]) -> AutoscalerReport:
    report = told.get("autoscaler_report") or {}
    types = [*(report.get("active_nodes") or {}), *(report.get("idle_nodes") or {})]
    starting = len(report.get("pending_nodes") or []) + sum((report.get("pending_launches") or {}).values())
    return AutoscalerReport(any(not kind.startswith(_NOBODYS) for kind in types), starting)


def request_name(run: str) -> str:
    """The name of the group that asks for a node for a run."""
    return f"jgr-node-for-{ray.get_runtime_context().namespace}-{run}"


def list_requests() -> list[Request]:
    """Requests of this gateway and of its earlier lives, in a thread."""
    prefix = request_name("")
    return [
        Request(facts["name"].removeprefix(prefix), facts["placement_group_id"], _nodes_of(facts))
        for facts in placement_group_table().values()
        if (facts["name"] or "").startswith(prefix) and facts["state"] != "REMOVED"
    ]


def _nodes_of(facts: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(facts["bundles_to_node_id"].values() if facts["state"] == "CREATED" else ())


def raise_request(run: Run, not_on: Collection[str]) -> None:
    """Ask for nodes that could take a run, in a thread; ``not_on``: the nodes that are up."""
    bundles = bundles_of(run)
    where = {"ray.io/node-id": f"!in({','.join(sorted(not_on))})"} if not_on else {}
    apart = "STRICT_SPREAD" if len(bundles) > 1 and run.nodes == len(bundles) else "PACK"
    selectors = [{**dict(run.needs.labels), **where} for _ in bundles]
    placement_group(bundles, strategy=apart, name=request_name(run.run), bundle_label_selector=selectors)


def withdraw_request(request: Request) -> None:
    """Ask no longer, in a thread."""
    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(request.group))))


def bundles_of(run: Run) -> list[dict[str, float]]:
    """Resources that a run wants, of each of its parts that stay on one node."""
    needs, kind = run.needs, _ray_type(run.needs.gpu_type)
    bundle = {
        "GPU": run.gpus_per_rank / GPU,
        "CPU": float(max(needs.cpus, run.cpus_per_rank)),
        "memory": float(needs.memory_bytes),
        f"accelerator_type:{kind}": _TOUCH if kind else 0.0,
    }
    return [{name: amount for name, amount in bundle.items() if amount} for _ in run.ranks]


def _ray_type(gpu_type: str) -> str:
    """The type as Ray writes it, where Ray knows it."""
    return next((kind for kind in _GPU_TYPES if kind.lower() == gpu_type.lower()), "")
