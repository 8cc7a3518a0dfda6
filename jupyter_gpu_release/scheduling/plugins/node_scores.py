"""Scores of nodes: the fuller one first; old GPUs for low priority, new ones for high priority."""

from __future__ import annotations

from ..queues.gpu_types import key
from ..queues.tree import Policy
from ..state import State
from ..workload import GPU, Node, Run


def pack(state: State, run: Run, node: str) -> tuple[float, float]:
    """Lower is better: what is left on the node; of equals that where less is to come. CPU stages shun GPUs."""
    nodes = state.nodes
    if not run.gpus_per_rank:
        return nodes.by_name[node].gpus, nodes.free_cpus[node]
    tight = min((room for room in nodes.rooms(node, soon=True) if room >= run.gpus_per_rank), default=GPU)
    if run.is_part and tight < GPU:  # before a whole one is opened
        return tight - GPU, -nodes.free[node]
    return nodes.room(node, soon=True), -nodes.free[node]


_NORMAL = 50


def gpu_tiers(policy: Policy, run: Run, node: Node) -> float:
    """Lower is better: -1 on GPUs of the run's own tier, 1 on those of the other."""
    if not policy.gpu_tiers or not run.gpus_per_rank or run.priority == _NORMAL:
        return 0.0
    own, other = ("high", "low") if run.priority > _NORMAL else ("low", "high")
    return float(_is_of(policy, node, other)) - float(_is_of(policy, node, own))


def _is_of(policy: Policy, node: Node, tier: str) -> bool:
    return any(key(kind) in key(node.gpu_type) for kind in policy.gpu_tiers.get(tier, ()))
