"""Whether a value shows a part of a larger memory. Looks at types by name: imports no library."""

from __future__ import annotations

from typing import Any


def is_partial_view(value: Any) -> bool:
    """Whether an array or tensor shows only a part of a larger memory (which should be written first)."""
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
