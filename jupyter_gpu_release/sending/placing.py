"""Values and devices: what a device choice looks like, and what was put on a chosen device."""

from __future__ import annotations

import sys
from typing import Any

from ..core.devices import DeviceLedger
from ..storage import devices

_ATOMS = (str, bool, int, float, type(None))
_DEVICE_WORDS = ("cpu", "cuda", "gpu", "mps", "xpu")


def is_device_choice(value: Any, *, strictly: bool) -> bool:
    """Whether evaluating again makes sense: a device, a word, a flag, a number, a small dict of such.

    ``strictly``: only a device or the name of one (the expression runs a function of the notebook).
    """
    if type(value).__name__ in ("device", "dtype", "Device", "LogicalDevice", "PhysicalDevice"):
        return True
    if strictly:
        return isinstance(value, str) and value.partition(":")[0].lower() in _DEVICE_WORDS
    if isinstance(value, (list, tuple)):
        return all(is_device_choice(part, strictly=False) for part in value)
    if isinstance(value, dict):
        return all(is_device_choice(part, strictly=False) for part in value.values())
    return isinstance(value, _ATOMS)


def follow_placement(name: str, value: Any, ledger: DeviceLedger) -> None:
    """``model.to(device)`` ran on the CPU kernel: the GPU cell shall find the model on its device."""
    placed = ledger.placed.get(name)
    if placed is None or "torch" not in sys.modules:
        return
    for tensor in _tensors(value):
        if tensor.device.type != "cpu":
            continue
        if not placed:
            devices.unmark_tensor(tensor)
        elif not devices.tensor_mark(tensor):
            devices.mark_tensor(tensor, "cuda")


def _tensors(value: Any) -> list[Any]:
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return [value] if value.layout is torch.strided else []
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    return []
