"""Asks that no empty cluster of this shape could grant, said at once and with what the cluster has."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.resources import ResourceAsk
from .filters import FILTERS
from .snapshot import NodeState


def impossible(ask: ResourceAsk, cluster: Iterable[NodeState]) -> str | None:
    """Why ``ask`` could never be granted, or None when an empty cluster could."""
    nodes = list(cluster)
    if not nodes:
        return "the cluster has no nodes"
    total = sum(node.gpus_total for node in nodes)
    if ask.gpus > total:
        return f"asks for {ask.gpus} GPUs, the cluster has {total}"
    largest = max(node.gpus_total for node in nodes)
    if ask.gpus > largest:
        return f"asks for {ask.gpus} GPUs on one node, the largest node has {largest} (of {total} in the cluster)"
    if ask.gpu_type is not None and not ask.gpus:
        return f"asks for GPUs of type {ask.gpu_type}, but for 0 of them"
    return _lack(ask, nodes)


def _lack(ask: ResourceAsk, nodes: list[NodeState]) -> str | None:
    lacks = [[lack for check in FILTERS if (lack := check(ask, node))] for node in nodes]
    if any(not lack for lack in lacks):
        return None
    nearest = min(lacks, key=len)
    return f"asks for {' and '.join(nearest)}; no node of the cluster offers that ({_offers(ask, nodes)})"


def _offers(ask: ResourceAsk, nodes: list[NodeState]) -> str:
    """What there is instead, for the properties that were asked for."""
    parts = []
    if ask.gpu_type is not None:
        parts.append("cards: " + (", ".join(sorted({node.gpu_name for node in nodes if node.gpu_name})) or "unnamed"))
    if ask.labels:
        have = sorted({f"{key}={node.labels[key]}" for node in nodes for key in ask.labels if key in node.labels})
        parts.append("labels: " + (", ".join(have) or "none of these"))
    most = max(nodes, key=lambda node: node.cpus_total)
    parts.append(f"most CPUs: {most.cpus_total}")
    return "; ".join(parts)
