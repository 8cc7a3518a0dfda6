"""Which values to write first, as views look at the memory of others. Looks at types by name: imports no library."""

from __future__ import annotations

from typing import Any


def writing_order(value: Any) -> int:
    """Arrays before tensors, which may look at their memory; parts of a larger memory last."""
    return 2 if _is_partial_view(value) else int(type(value).__module__ == "torch")


def _is_partial_view(value: Any) -> bool:
    kind = type(value)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        base = value.base
        return base is not None and getattr(base, "nbytes", 0) > value.nbytes
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        try:
            partial: bool = value.untyped_storage().nbytes() > value.nbytes
        except RuntimeError:  # a layout without a storage
            return False
        return partial
    return False
