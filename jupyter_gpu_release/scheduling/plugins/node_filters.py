"""Filters: properties that a node must have for a run, whatever is free on it just now."""

from __future__ import annotations

from collections.abc import Callable

from ...units import format_bytes
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


FILTERS: tuple[Filter, ...] = (gpu_count, gpu_type, gpu_memory, cpu_count, host_memory, labels, attempts)
