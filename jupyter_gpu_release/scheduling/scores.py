"""Which of the nodes that could take a run now is best; higher is better."""

from __future__ import annotations

from ..core.resources import ResourceAsk
from .snapshot import NodeState


def pack(ask: ResourceAsk, node: NodeState) -> float:
    """Fill nodes that are in use already, so that whole nodes stay free for large asks."""
    return -float(node.gpus_free if ask.gpus else node.cpus_free)
