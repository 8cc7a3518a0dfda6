"""The simulated cards of a node; the real ones are read by ``hardware/nvml.py``."""

from __future__ import annotations

from ..core.node_messages import GpuInfo


def simulated_gpus(count: int) -> list[GpuInfo]:
    """``count`` cards that exist in Ray's bookkeeping only."""
    return [GpuInfo(index=str(index), name="simulated GPU", simulated=True) for index in range(count)]
