"""The memory of tensors: where it lies, views of it, what stands in its place; tensors updated in place."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ..memory import LARGEST_COPIED_BYTES, Layout, NotThereError, Place
from ..registry import adapters_of, first_answer
from . import device_marks, tensors

#: smaller ones are not mapped, so a copy costs nothing later
_SMALL_BYTES = 1 << 20


#: memory that tensors of the notebook looked at before, with their shapes now
_parted: list[tuple[Any, tuple[int, ...]]] = []


def take_remarks() -> list[str]:
    """Sentences on tensors that have parted from what looks at their memory."""
    seen = [str(shape) for storage, shape in _parted if torch._C._storage_Use_Count(storage._cdata) > 1]
    shapes = ", ".join(dict.fromkeys(seen))
    _parted.clear()
    words = "has memory of its own now; what else looked at the old one still does"
    return [f"a tensor of shape {shapes} {words}"] if shapes else []


def _storage_key(tensor: Any) -> Any:
    """The place of a CPU tensor's memory; None: it has none."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or not tensor.untyped_storage().nbytes():
        return None
    return "storage", tensor.untyped_storage().data_ptr()


def layout_of(tensor: Any) -> Layout | None:
    """The layout of a strided tensor."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_conj() or tensor.is_neg():
        return None
    try:
        address, size = tensor.data_ptr(), tensor.element_size()
    except RuntimeError:  # a tensor without memory of its own (a subclass, a transform's)
        return None
    strides = tuple(size * each for each in tensor.stride())
    return Layout(str(tensor.device), address, tuple(tensor.shape), strides, size)


def bytes_of(tensor: Any) -> tuple[int, Any]:
    """Address and bytes (as an array) of a CPU tensor's memory."""
    memory = torch.empty(0, dtype=torch.uint8, device="cpu").set_(tensor.untyped_storage()).numpy()
    return tensor.untyped_storage().data_ptr(), memory


def view_at(live: Any, place: Place, address: int, strides: tuple[int, ...]) -> Any:
    """A tensor over the memory of ``live``, which may be an array."""
    mark = ""
    if isinstance(live, torch.Tensor):
        storage, mark = live.untyped_storage(), device_marks.tensor_mark(live)
    else:
        found = first_answer(each.bytes_of(live, to_write=False) for each in adapters_of(type(live)))
        if found is None:
            raise NotThereError
        with warnings.catch_warnings():  # an array that cannot be written to
            warnings.simplefilter("ignore")
            storage = torch.from_numpy(found[1]).untyped_storage()
    size, at = place.dtype.itemsize, address - storage.data_ptr()
    low, high = Layout("", at, place.shape, strides, size).extent
    if low < 0 or high > storage.nbytes() or at % size or any(stride % size for stride in strides):
        raise NotThereError
    steps = tuple(stride // size for stride in strides)
    tensor = tensors.rebuild_tensor(place.kind, storage, place.dtype, at // size, place.shape, steps, place.flag)
    if mark:
        setattr(tensor, device_marks.ATTRIBUTE, mark)
    return tensor


def replaced_memory(old: Any, new: Any) -> dict[Any, Any]:
    """Place of the memory of ``old`` → the storage in its place, if what looked at it can look at that."""
    key = _storage_key(old)
    if not key or old.dtype != new.dtype:
        return {}
    storage = new.untyped_storage()
    is_alike = storage.nbytes() == old.untyped_storage().nbytes() and old.storage_offset() == new.storage_offset()
    return {key: storage} if is_alike else {}


def look_at_new_memory(tensor: Any, memory: Mapping[Any, Any]) -> None:
    """Have a tensor look at the memory that stands in the place of its own; it stays itself."""
    new = memory.get(_storage_key(tensor))
    if new is not None and tensor.grad_fn is None:
        view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        with contextlib.suppress(RuntimeError):  # an inference tensor, say
            view = view.set_(new, tensor.storage_offset(), tensor.shape, tensor.stride())
            tensor.data = tensors.turned(view, tensor.is_conj(), tensor.is_neg())


def array_over_new_memory(array: Any, tensor: Any, memory: Mapping[Any, Any]) -> Any:
    """The same of an array that looks at the memory of ``tensor``."""
    new = memory.get(_storage_key(tensor))
    if new is None:
        return array
    offset = array.__array_interface__["data"][0] - tensor.untyped_storage().data_ptr()
    return tensors.array_over_storage(new, array.dtype, array.shape, array.strides, offset, array.flags.writeable)


def fill_view(old: Any, new: Any) -> bool:
    """Copy ``new`` into ``old`` if that is a view of a larger memory."""
    if _storage_key(old) is None or old.shape != new.shape or old.dtype != new.dtype or old.requires_grad:
        return False
    if old.untyped_storage().nbytes() <= max(old.nbytes, new.untyped_storage().nbytes()):
        return False
    old.data.copy_(new.data)
    return True


def is_partial_view(tensor: Any) -> bool:
    """Tell if it looks at a part of a larger memory."""
    try:
        return bool(tensor.untyped_storage().nbytes() > tensor.nbytes)
    except RuntimeError:  # a layout without a storage
        return False


def update(old: Any, new: Any) -> bool:
    """Bring a tensor of the notebook to what came back for it."""
    if old.is_conj() or old.is_neg():
        return _update_turned(old, new)
    now, then = layout_of(old), layout_of(new)
    if now is None or then is None or old.dtype != new.dtype or old.grad_fn is not None or old.is_inference():
        return False
    is_alike = (now.shape, now.strides) == (then.shape, then.strides)
    is_others = _is_shared(old) or tensors.is_foreign(old.untyped_storage())
    if is_alike and (old.nbytes <= _SMALL_BYTES or (is_others and old.nbytes <= LARGEST_COPIED_BYTES)):
        with torch.no_grad():
            old.detach().copy_(new.detach())
    elif _is_shared(old) and is_alike:
        return False
    else:
        if _is_shared(old):
            _parted.append((old.untyped_storage(), tuple(new.shape)))
        old.data = new.detach()
    old.requires_grad_(new.requires_grad)
    old.grad = new.grad
    for hook in list((new._backward_hooks or {}).values())[len(old._backward_hooks or ()) :]:
        old.register_hook(hook)
    vars(old).clear()
    vars(old).update(vars(new))
    mark = device_marks.tensor_mark(new)
    if mark:
        device_marks.mark_tensor(old, mark)
    elif device_marks.tensor_mark(old):
        device_marks.unmark_tensor(old)
    return True


def _update_turned(old: Any, new: Any) -> bool:
    """A view that shows its memory conjugated, or with the other sign: the memory gets the values."""
    mine, theirs = ((each.is_conj(), each.is_neg(), each.shape, each.dtype) for each in (old, new))
    if mine != theirs or old.grad_fn is not None or old.is_inference() or old.nbytes > LARGEST_COPIED_BYTES:
        return False
    with torch.no_grad():
        old.detach().copy_(new.detach())
    return True


def _is_shared(tensor: Any) -> bool:
    """Tell if something else looks at a tensor's memory (the tensor and the storage that is asked count two)."""
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count > 2
