"""Limits on GPU memory for a rank that has a part of a GPU."""

from __future__ import annotations

import os

from ..settings.built_in import BUILT_IN
from .registry import loaded_adapters

_CONTEXT_BYTES: int = BUILT_IN["cuda_context_bytes"].default
#: variables of JAX, which reads one of them when it first uses a GPU, and refuses both; the newer one is the user's
_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


def limit_gpu_memory(part: float, part_bytes: int) -> list[str]:
    """Have the libraries of this process take ``part`` of its GPU at most, less what CUDA itself needs; ``part_bytes``:
    its size (0: not known). Returns notes on those that do not.
    """
    share = part * (1 - min(_CONTEXT_BYTES, part_bytes // 2) / part_bytes) if part_bytes else part
    name = next((name for name in _FRACTIONS if name in os.environ), _FRACTIONS[-1])
    os.environ[name] = f"{min(share, _fraction(os.environ.get(name, ''))):.4f}"
    notes = []
    for adapter in loaded_adapters():
        try:
            adapter.limit_gpu_memory(share)
        except (RuntimeError, ValueError, AttributeError, ImportError) as error:
            notes.append(f"{adapter.name} does not limit its memory to the part of the GPU: {error}")
    return notes


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # none, or one that JAX refuses
        return 1.0
