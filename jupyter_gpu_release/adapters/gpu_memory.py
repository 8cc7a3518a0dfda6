"""Limits on GPU memory for a rank that has a part of a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..settings.built_in import BUILT_IN
from .adapter import Adapter
from .registry import adapter_of, loaded_adapters

_CONTEXT_BYTES: int = BUILT_IN["cuda_context_bytes"].default
#: variables of JAX, which reads one of them when it first uses a GPU, and refuses both; the newer one is the user's
_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


class GpuMemoryLimit:
    """Has the libraries of this process take ``part`` of its GPU at most, less what CUDA itself needs.

    ``part_bytes``: its size (0: not known). ``notes`` gets a sentence on each library that does not.
    """

    def __init__(self, part: float, part_bytes: int, notes: list[str]) -> None:
        self._share = part * (1 - min(_CONTEXT_BYTES, part_bytes // 2) / part_bytes) if part_bytes else part
        self._notes = notes

    def set_loaded(self) -> None:
        """Limit what is loaded, and JAX, loaded or not."""
        name = next((name for name in _FRACTIONS if name in os.environ), _FRACTIONS[-1])
        os.environ[name] = f"{min(self._share, _fraction(os.environ.get(name, ''))):.4f}"
        self._set(loaded_adapters())

    def concerns(self, module: str) -> bool:
        """Tell if a module that is about to be imported is a library with a limit."""
        adapter = adapter_of(module)
        return adapter is not None and type(adapter).limit_gpu_memory is not Adapter.limit_gpu_memory

    def set_imported(self, modules: Iterable[str]) -> None:
        """Limit what the cell has imported just now."""
        self._set(adapter for module in modules if (adapter := adapter_of(module)) is not None)

    def _set(self, adapters: Iterable[Adapter]) -> None:
        for adapter in adapters:
            try:
                adapter.limit_gpu_memory(self._share)
            except (RuntimeError, ValueError, AttributeError, ImportError) as error:
                self._notes.append(f"{adapter.name} does not limit its memory to the part of the GPU: {error}")


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # none, or one that JAX refuses
        return 1.0
