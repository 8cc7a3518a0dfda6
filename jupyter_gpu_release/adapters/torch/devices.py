"""GPUs as torch sees them in this process, and what was chosen and placed on them."""

from __future__ import annotations

import sys
from typing import Any

from . import device_marks

#: in torch's errors where a process sees no GPU
NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "object on a CUDA device but torch.cuda.is_available() is False",
)


def has_touched_gpu() -> bool:
    """Tell if torch has opened a GPU in this process."""
    torch = sys.modules["torch"]
    return bool(hasattr(torch, "cuda") and torch.cuda.is_initialized())


def is_busy() -> bool:
    """Tell if something is still at work on a GPU."""
    if not has_touched_gpu():
        return False
    cuda = sys.modules["torch"].cuda
    try:
        return not all(cuda.current_stream(n).query() for n in range(cuda.device_count()))
    except RuntimeError:  # an error that the device met before
        return True


def untouched_reason(namespace: dict[str, Any]) -> str:
    """The likely reason why a cell left its GPU alone, from what its names hold."""
    torch = sys.modules["torch"]
    if not hasattr(torch, "nn"):
        return ""
    if not torch.cuda.is_available():
        return "torch sees no GPU here (its build or the driver)"
    for name, value in namespace.items():
        if isinstance(value, torch.nn.Module) and not name.startswith("_"):
            first = next(iter(value.parameters()), None)
            if first is not None and first.device.type == "cpu":
                return f"`{name}` was never moved to the GPU (`{name}.to('cuda')`)"
    return "nothing was moved to the GPU"


def follow_placement(value: Any, device: str) -> None:
    """Mark the tensors in host memory that ``value`` consists of; an empty ``device``: they are there on purpose."""
    for tensor in _tensors(value):
        if tensor.device.type != "cpu":
            continue
        if not device:
            device_marks.unmark_tensor(tensor)
        elif not device_marks.tensor_mark(tensor):
            device_marks.mark_tensor(tensor, device)


def _tensors(value: Any) -> list[Any]:
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return [value] if value.layout is torch.strided else []
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    return []
