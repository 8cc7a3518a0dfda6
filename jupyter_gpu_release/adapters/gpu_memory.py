"""Limits on GPU memory for a rank that has a part of a GPU."""

from __future__ import annotations

import os

from ..settings.built_in import BUILT_IN
from .registry import loaded_adapters

_CONTEXT_BYTES: int = BUILT_IN["cuda_context_bytes"].default
#: variables that libraries read when they first use a GPU, also those that a cell imports later
_FRACTIONS = ("XLA_PYTHON_CLIENT_MEM_FRACTION",)


def limit_gpu_memory(part: float, part_bytes: int) -> None:
    """Have the libraries of this process, and those that it imports, take ``part`` of its GPU at most, less what CUDA
    itself needs; ``part_bytes``: its size (0: not known).
    """
    share = part * (1 - min(_CONTEXT_BYTES, part_bytes // 2) / part_bytes) if part_bytes else part
    for name in _FRACTIONS:
        os.environ[name] = f"{share:.4f}"
    for adapter in loaded_adapters():
        if adapter.can_use_gpu:
            adapter.limit_gpu_memory(share, int(share / part * part_bytes))
