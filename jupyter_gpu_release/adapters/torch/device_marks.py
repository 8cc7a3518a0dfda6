"""Marks on host objects that stand for things on a GPU: where these lived, and the way back there.

A tensor that comes home is an ordinary CPU tensor that remembers its device. In the next GPU cell it is rebuilt
there.
"""

from __future__ import annotations

import sys
from typing import Any

ATTRIBUTE = "_gpu_release_device"
#: id → (torch.device that came home as a CPU one, what it was); they are few and must keep their ids
_TORCH_DEVICES: dict[int, tuple[Any, str]] = {}


def mark_tensor(tensor: Any, device: str) -> None:
    """A torch tensor stands for one on ``device``; its storage too, so that its views do."""
    setattr(tensor, ATTRIBUTE, device)
    setattr(tensor.untyped_storage(), ATTRIBUTE, device)


def unmark_tensor(tensor: Any) -> None:
    """Forget the mark: it is a CPU tensor on purpose now."""
    for owner in (tensor, tensor.untyped_storage()):
        if hasattr(owner, ATTRIBUTE):
            delattr(owner, ATTRIBUTE)


def tensor_mark(tensor: Any) -> str:
    """The device that a CPU tensor stands for, or an empty string."""
    found: str = tensor.__dict__.get(ATTRIBUTE, "") or getattr(tensor.untyped_storage(), ATTRIBUTE, "")
    return found


def without_mark(attributes: dict[str, Any]) -> dict[str, Any]:
    """A tensor's attributes, less our mark."""
    return {name: value for name, value in attributes.items() if name != ATTRIBUTE}


def mark_torch_device(device: Any, was: str) -> None:
    """A ``torch.device`` object that is a CPU one here and was ``was`` in the GPU cell."""
    _TORCH_DEVICES[id(device)] = (device, was)


def torch_device_mark(device: Any) -> str:
    """The device that a CPU device was in the GPU cell, or an empty string."""
    found = _TORCH_DEVICES.get(id(device))
    return found[1] if found is not None else ""


def local_device(device: str) -> str:
    """``cuda:3`` for the GPUs of this process: the same one if it is here, else the first."""
    torch = sys.modules["torch"]
    kind, _, index = device.partition(":")
    if index and int(index) >= torch.cuda.device_count():
        return f"{kind}:0"
    return device
