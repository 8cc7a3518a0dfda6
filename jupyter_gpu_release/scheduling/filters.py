"""Which nodes could ever take an ask: each filter names what a node lacks, or returns None.

Filters look at what a node *is*, never at what is free just now.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..core.resources import ResourceAsk, format_bytes
from .snapshot import NodeState

Filter = Callable[[ResourceAsk, NodeState], str | None]


def cpus_needed(ask: ResourceAsk) -> int:
    """CPUs that ``ask`` takes on each of its nodes: only a run without GPUs reserves them, one a rank at least."""
    return 0 if ask.gpus else max(ask.ranks // ask.nodes, math.ceil(ask.cpus or 1))


def gpus_per_node(ask: ResourceAsk) -> int:
    """GPUs on each of the nodes over which ``ask`` is spread."""
    return ask.gpus // ask.nodes


def gpu_count(ask: ResourceAsk, node: NodeState) -> str | None:
    """As many GPUs as asked for, on one node (with ``--nodes``: this node's even share)."""
    wanted = gpus_per_node(ask)
    return f"{wanted} GPUs on one node" if wanted > node.gpus_total else None


def gpu_type(ask: ResourceAsk, node: NodeState) -> str | None:
    """The card's name contains the type that was asked for."""
    if ask.gpu_type is None or (ask.gpus and _card(ask.gpu_type) in _card(node.gpu_name)):
        return None
    return f"GPUs of type {ask.gpu_type}"


def gpu_memory(ask: ResourceAsk, node: NodeState) -> str | None:
    """Each card has at least this much memory."""
    wanted = ask.min_gpu_memory_bytes
    if wanted is None or node.gpu_memory_bytes >= wanted:
        return None
    return f"GPUs with {format_bytes(wanted)} of memory"


def cpu_count(ask: ResourceAsk, node: NodeState) -> str | None:
    """As many CPUs as asked for."""
    wanted = ask.cpus if ask.gpus else cpus_needed(ask)
    return f"{wanted:g} CPUs on one node" if wanted is not None and wanted > node.cpus_total else None


def host_memory(ask: ResourceAsk, node: NodeState) -> str | None:
    """As much host memory as asked for, where the node's is known."""
    wanted = ask.memory_bytes
    if wanted is None or not node.memory_bytes or wanted <= node.memory_bytes:
        return None
    return f"{format_bytes(wanted)} of memory on one node"


def labels(ask: ResourceAsk, node: NodeState) -> str | None:
    """Every label that was asked for, with this value."""
    lacking = [f"{key}={value}" for key, value in ask.labels.items() if node.labels.get(key) != value]
    return f"the label {', '.join(lacking)}" if lacking else None


FILTERS: tuple[Filter, ...] = (gpu_count, gpu_type, gpu_memory, cpu_count, host_memory, labels)


def suits(ask: ResourceAsk, node: NodeState) -> bool:
    """Whether ``node``, empty, could take ``ask``."""
    return all(lack(ask, node) is None for lack in FILTERS)


def _card(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
