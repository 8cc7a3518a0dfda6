"""Filters: properties that a node must have for a run, and asks that no set of these nodes could grant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...units import format_bytes, format_seconds
from ..queues.gpu_types import key
from ..workload import GPU, Node, Run

Filter = Callable[[Run, Node], str | None]


def gpu_count(run: Run, node: Node) -> str | None:
    """A rank's GPUs are on one node."""
    return f"{run.gpus_per_rank / GPU:g} GPUs on one node" if run.gpus_per_rank > node.gpus else None


def gpu_type(run: Run, node: Node) -> str | None:
    """The GPU's name contains what was asked for."""
    wanted = run.needs.gpu_type
    return f"GPUs of type {wanted}" if wanted and key(wanted) not in key(node.gpu_type) else None


def gpu_memory(run: Run, node: Node) -> str | None:
    """Each GPU has at least this much memory."""
    wanted = run.needs.min_gpu_memory_bytes
    return f"GPUs with {format_bytes(wanted)} of memory" if wanted > node.gpu_memory_bytes else None


def cpu_count(run: Run, node: Node) -> str | None:
    """The node has as many CPUs as asked for."""
    wanted = max(run.needs.cpus, run.cpus_per_rank)
    return f"{wanted} CPUs on one node" if wanted > node.cpus else None


def host_memory(run: Run, node: Node) -> str | None:
    """The node has as much memory as asked for, where that is known."""
    wanted = run.needs.memory_bytes
    return f"{format_bytes(wanted)} of memory on one node" if node.memory_bytes and wanted > node.memory_bytes else None


def labels(run: Run, node: Node) -> str | None:
    """The node has every label that was asked for."""
    lacking = [f"{name}={value}" for name, value in run.needs.labels if (name, value) not in node.labels]
    return f"the label {', '.join(lacking)}" if lacking else None


def attempts(run: Run, node: Node) -> str | None:
    """The node's agent tells attempts apart, where the run may have several."""
    return "a node agent of this version" if run.needs.attempts and not node.knows_attempts else None


def walltime(run: Run, node: Node) -> str | None:
    """The node is there until the run is over."""
    return f"a node that stays for {format_seconds(run.lasts_s)}" if run.lasts_s > node.left_s else None


def sharing(run: Run, node: Node) -> str | None:
    """The node's GPUs may be shared, where the run wants a part of one."""
    return "GPUs that may be shared" if run.is_part and node.gpus and not node.parts_per_gpu else None


FILTERS: tuple[Filter, ...] = (
    gpu_count,
    gpu_type,
    gpu_memory,
    cpu_count,
    host_memory,
    labels,
    attempts,
    walltime,
    sharing,
)


def impossible(run: Run, cluster: Iterable[Node]) -> str | None:
    """The reason why a run could never be granted, or None when an empty cluster could grant it."""
    nodes = list(cluster)
    if not nodes:
        return "the cluster has no nodes"
    if run.needs.gpu_type and not run.gpus_per_rank:
        return f"asks for GPUs of type {run.needs.gpu_type}, but for 0 of them"
    return _too_many(run, nodes) or _lack(run, nodes)


def _too_many(run: Run, nodes: Sequence[Node]) -> str | None:
    asked, total = run.min_ranks * run.gpus_per_rank, sum(node.gpus for node in nodes)
    if asked > total:
        return f"asks for {asked / GPU:g} GPU{'' if asked == GPU else 's'}, the cluster has {total / GPU:g}"
    if run.nodes == "any":
        return None
    if run.nodes > len(nodes):
        return f"asks for {run.nodes} nodes, the cluster has {len(nodes)}"
    largest, share = max(node.gpus for node in nodes), asked // run.nodes
    if share <= largest:
        return None
    spread = "" if run.nodes > 1 else "; --ranks with --nodes any spreads a cell over several"
    return (
        f"asks for {share / GPU:g} GPUs on one node, the largest node has {largest / GPU:g}"
        f" (of {total / GPU:g} in the cluster){spread}"
    )


def _lack(run: Run, nodes: Sequence[Node]) -> str | None:
    lacks = [[lack for check in FILTERS if (lack := check(run, node))] for node in nodes]
    fitting = [node for node, lack in zip(nodes, lacks, strict=True) if not lack]
    if run.nodes == "any":
        if sum(ranks_on(run, node) for node in fitting) >= run.min_ranks:
            return None
    elif sum(ranks_on(run, node) >= run.min_ranks // run.nodes for node in fitting) >= run.nodes:
        return None
    if fitting and run.nodes == "any":
        room = sum(ranks_on(run, node) for node in fitting)
        return f"asks for {run.min_ranks} ranks, the nodes that offer this have room for {room}"
    if fitting:
        wanted = f"{run.nodes} node{'s' * (run.nodes != 1)}"
        return f"asks for {wanted} that offer this, the cluster has {len(fitting)}"
    named = list(dict.fromkeys(lack for node_lacks in lacks for lack in node_lacks))
    nowhere = [lack for lack in named if all(lack in node_lacks for node_lacks in lacks)]
    return f"asks for {' and '.join(nowhere or named)}; no node of the cluster offers that{_offers(run, nodes)}"


def ranks_on(run: Run, node: Node) -> int:
    """Ranks that the node takes, were it empty."""
    by_gpus = run.ranks_in(node.gpus) if run.gpus_per_rank else len(run.ranks)
    return min(by_gpus, node.cpus // run.cpus_per_rank) if run.cpus_per_rank else by_gpus


def _offers(run: Run, nodes: Sequence[Node]) -> str:
    """List what there is instead, in brackets, for the properties that were asked for; empty: of none is more known."""
    needs, parts = run.needs, []
    if needs.gpu_type:
        parts.append("GPUs: " + (", ".join(sorted({node.gpu_type for node in nodes if node.gpu_type})) or "unnamed"))
    if needs.min_gpu_memory_bytes:
        most_memory = max(node.gpu_memory_bytes for node in nodes)
        parts.append(f"most GPU memory: {format_bytes(most_memory) if most_memory else 'not known'}")
    if needs.memory_bytes:
        parts.append(f"most memory: {format_bytes(max(node.memory_bytes for node in nodes))}")
    if needs.labels:
        asked = {name for name, _ in needs.labels}
        have = sorted({f"{name}={value}" for node in nodes for name, value in node.labels if name in asked})
        parts.append("labels: " + (", ".join(have) or "none of these"))
    if needs.cpus or run.cpus_per_rank > 1:
        parts.append(f"most CPUs: {max(node.cpus for node in nodes)}")
    return f" ({'; '.join(parts)})" if parts else ""
