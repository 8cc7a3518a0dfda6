"""Which memory arrays and tensors look at: views of replaced memory are told by it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def memory_of(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Key of replaced memory (root array's id, or storage's address) → the new root array, or storage."""
    found: dict[Any, Any] = {}
    for old, new in pairs:
        kind = type(old)
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray" and type(new) is kind:
            _note_array(found, old, new)
        key = storage_key(old)
        if key and type(new) is kind and old.dtype == new.dtype:
            storage = new.untyped_storage()
            if storage.nbytes() == old.untyped_storage().nbytes() and old.storage_offset() == new.storage_offset():
                found[key] = storage
    return found


def _note_array(found: dict[Any, Any], old: Any, new: Any) -> None:
    from . import numpy_reducers

    old_root, new_root = (each if each.base is None else numpy_reducers.memory_root(each) for each in (old, new))
    if new_root is None:  # it looks at a foreign buffer itself
        new_root = new
    if old_root is None:
        return
    same = old_root.nbytes == new_root.nbytes and not old.dtype.hasobject and old.dtype == new.dtype
    if same and old_root.flags.c_contiguous == new_root.flags.c_contiguous and new_root.flags.forc:
        found[id(old_root)] = new_root


def storage_key(value: Any) -> Any:
    """Where a CPU tensor's memory is; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    if value.device.type != "cpu" or not value.untyped_storage().nbytes():
        return None
    return "storage", value.untyped_storage().data_ptr()


def copy_into_view(old: Any, new: Any) -> bool:
    """Whether ``old`` is a view whose memory was not sent, and got the values of ``new``: the memory sees them, too."""
    kind = type(old)
    if type(new) is not kind or kind.__name__ not in ("ndarray", "Tensor"):
        return False
    if kind.__module__ == "numpy":
        root = getattr(old.base, "nbytes", 0)
        if old.shape != new.shape or old.dtype != new.dtype or root <= old.nbytes or not old.flags.writeable:
            return False
        if getattr(new.base, "nbytes", 0) == root:
            return False
        old[...] = new
        return True
    if storage_key(old) is None or old.shape != new.shape or old.dtype != new.dtype or old.requires_grad:
        return False
    if old.untyped_storage().nbytes() <= max(old.nbytes, new.untyped_storage().nbytes()):
        return False
    old.data.copy_(new.data)
    return True
