"""Asks that no empty cluster of this shape could grant, said at once and with what the cluster has."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.resources import ResourceAsk, format_bytes
from .filters import FILTERS, cpus_needed, gpus_per_node
from .snapshot import NodeState


def impossible(ask: ResourceAsk, cluster: Iterable[NodeState]) -> str | None:
    """Why ``ask`` could never be granted, or None when an empty cluster could."""
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
    """What there is instead, for the properties that were asked for."""
    parts = []
    if ask.gpu_type is not None:
        parts.append("cards: " + (", ".join(sorted({node.gpu_name for node in nodes if node.gpu_name})) or "unnamed"))
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
