"""Node filters; asks that no cluster could grant.

Filters look at what a node *is*, never at what is free just now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ..protocol.runs import ResourceAsk
from ..units import format_bytes
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
    """The GPU's name contains the type that was asked for."""
    if ask.gpu_type is None or (ask.gpus and _type_key(ask.gpu_type) in _type_key(node.gpu_name)):
        return None
    return f"GPUs of type {ask.gpu_type}"


def gpu_memory(ask: ResourceAsk, node: NodeState) -> str | None:
    """Each GPU has at least this much memory."""
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
    """Tell if ``node``, empty, could take ``ask``."""
    return all(lack(ask, node) is None for lack in FILTERS)


def _type_key(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def impossible(ask: ResourceAsk, cluster: Iterable[NodeState]) -> str | None:
    """The reason why ``ask`` could never be granted, or None when an empty cluster could grant it."""
    nodes = list(cluster)
    if not nodes:
        return "the cluster has no nodes"
    total = sum(node.gpus_total for node in nodes)
    if ask.gpus > total:
        return f"asks for {ask.gpus} GPUs, the cluster has {total}"
    if ask.nodes > len(nodes):
        return f"asks for {ask.nodes} nodes, the cluster has {len(nodes)}"
    largest, share = max(node.gpus_total for node in nodes), gpus_per_node(ask)
    if share > largest:
        spread = "" if ask.nodes > 1 else "; --ranks with --nodes spreads a cell over several"
        return f"asks for {share} GPUs on one node, the largest node has {largest} (of {total} in the cluster){spread}"
    if ask.gpu_type is not None and not ask.gpus:
        return f"asks for GPUs of type {ask.gpu_type}, but for 0 of them"
    return _lack(ask, nodes)


def _lack(ask: ResourceAsk, nodes: list[NodeState]) -> str | None:
    lacks = [[lack for check in FILTERS if (lack := check(ask, node))] for node in nodes]
    fitting = sum(not lack for lack in lacks)
    if fitting >= ask.nodes:
        return None
    if fitting:
        return f"asks for {ask.nodes} nodes that offer this, the cluster has {fitting}"
    named = list(dict.fromkeys(lack for node_lacks in lacks for lack in node_lacks))
    nowhere = [lack for lack in named if all(lack in node_lacks for node_lacks in lacks)]
    together = " and ".join(nowhere or named)
    return f"asks for {together}; no node of the cluster offers that ({_offers(ask, nodes)})"


def _offers(ask: ResourceAsk, nodes: list[NodeState]) -> str:
    """List what there is instead, for the properties that were asked for."""
    parts = []
    if ask.gpu_type is not None:
        parts.append("GPUs: " + (", ".join(sorted({node.gpu_name for node in nodes if node.gpu_name})) or "unnamed"))
    if ask.min_gpu_memory_bytes is not None:
        most_memory = max(node.gpu_memory_bytes for node in nodes)
        parts.append(f"most GPU memory: {format_bytes(most_memory) if most_memory else 'not known'}")
    if ask.memory_bytes is not None:
        parts.append(f"most memory: {format_bytes(max(node.memory_bytes for node in nodes))}")
    if ask.labels:
        have = sorted({f"{key}={node.labels[key]}" for node in nodes for key in ask.labels if key in node.labels})
        parts.append("labels: " + (", ".join(have) or "none of these"))
    if ask.cpus is not None or cpus_needed(ask) > 1:
        parts.append(f"most CPUs: {max(node.cpus_total for node in nodes)}")
    return "; ".join(parts)
