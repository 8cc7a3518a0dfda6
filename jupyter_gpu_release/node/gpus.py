"""The simulated cards of a node, and what Ray counts there; the real ones are read by ``hardware/nvml.py``."""

from __future__ import annotations

import os

import ray

from ..core.node_messages import GpuInfo


def simulated_gpus(count: int) -> list[GpuInfo]:
    """``count`` cards that exist in Ray's bookkeeping only."""
    return [GpuInfo(index=str(index), name="simulated GPU", simulated=True) for index in range(count)]


def counted(node: str) -> tuple[int, int]:
    """GPUs and CPUs that Ray counts on this node."""
    for entry in ray.nodes():
        if entry["NodeID"] == node:
            resources = entry["Resources"]
            return int(resources.get("GPU", 0)), int(resources.get("CPU", 0)) or os.cpu_count() or 1
    return 0, os.cpu_count() or 1
