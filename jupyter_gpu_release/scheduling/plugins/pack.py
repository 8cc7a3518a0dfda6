"""Score: the fuller node first, so that whole nodes stay free for gangs."""

from __future__ import annotations

from ..state import State
from ..workload import Run


def pack(state: State, run: Run, node: str) -> tuple[float, float]:
    """Lower is better: what is left on the node; of equals that where less is to come. CPU stages shun GPUs."""
    nodes = state.nodes
    if not run.gpus_per_rank:
        return nodes.by_name[node].gpus, nodes.free_cpus[node]
    return nodes.room(node, soon=True), -nodes.free[node]
