"""Tensors and what goes with them: bytes out of band without a copy, views and shared storages kept, ``.grad`` kept,
devices remembered.
"""

from __future__ import annotations

import copyreg
import ctypes
import functools
import io
import pickle
import warnings
import weakref
from typing import Any

import numpy as np
import torch

from ... import streams
from ..adapter import Reader, Reducer, receiving
from ..memory import placed
from ..numpy import arrays, mapped_files
from ..singletons import by_name
from ..stdlib import buffers
from . import device_marks, distributed

#: a view of at least this much less than its storage takes only itself along, unless the storage travels anyway
_SMALL_STORAGE_BYTES = 1 << 20
#: smaller ones get memory of torch's own: no other can be resized (``resize_``)
_RESIZABLE_BYTES = 64 << 10
DETACHED = "detached from its computation graph"
#: under which a pickler knows which files are mapped
_FILES = (None, "files")
#: our mark on a storage whose memory came here with it, so that no other object owns it
_PLACED = "_gpu_release_placed"
#: torch's mark on a ``step`` that a scheduler has replaced
_WRAPPED = "_wrapped_by_lr_sched"


def reducer_for(kind: type) -> Reducer | None:
    """The reducer for a class, None for torch's own way."""
    if issubclass(kind, torch.Tensor):
        return reduce_tensor if _is_plain(kind) else None
    if issubclass(kind, torch.optim.Optimizer):
        return reduce_optimizer
    if "__getstate__" in vars(kind) and kind.__module__ == "torch.nn.utils.parametrize":
        return reduce_parametrized
    return _BY_TYPE.get(kind)


def _is_plain(kind: Any) -> bool:
    """Tell if a tensor class keeps all its data where torch.Tensor does."""
    usual = kind.__reduce_ex__ in (torch.Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__)
    return usual and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def reduce_tensor(pickler: Any, tensor: Any) -> Any:
    """A strided tensor as a view on its storage; other layouts go torch's own way, from host memory."""
    sharding = distributed.sharding_of(pickler)
    if sharding is None and distributed.is_flat(tensor):
        return distributed.refuse_flat(pickler, tensor)
    if sharding is not None and sharding.is_whole(pickler, tensor):
        return sharding.reduce_whole(pickler, tensor)
    if tensor.grad_fn is not None:
        pickler.remarks.append(DETACHED)
        tensor = _kept(pickler, tensor.detach())
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return _reduce_unusual(pickler, tensor)
    if tensor.is_conj() or tensor.is_neg():
        return _reduce_turned(pickler, tensor)
    if pickler.compact and tensor.device.type != "cpu":
        return _digest_reduce(pickler, tensor)
    attributes = device_marks.without_mark(tensor.__dict__) if tensor.__dict__ else None
    grad = tensor.grad if tensor.is_leaf else None
    hooks = _hooks(pickler, tensor)
    state = ((attributes, grad, hooks), None, None, set_tensor) if attributes or grad is not None or hooks else ()
    referred = pickler.reference_for(tensor)
    if referred is not None:
        return (*referred, *state)
    storage, offset = tensor.untyped_storage(), tensor.storage_offset()
    if tensor.numel() and not storage.nbytes():
        if sharding is not None:
            return sharding.reduce_freed(pickler, tensor)
        raise pickle.PicklingError("its memory was let go (FSDP does that to what its module wraps)")
    if _is_small_view(pickler, tensor, storage):
        compact = _kept(pickler, tensor.detach().clone())
        storage, offset = compact.untyped_storage(), 0
        strides = compact.stride()
    else:
        strides = tensor.stride()
    mark = device_marks.tensor_mark(tensor) if tensor.device.type == "cpu" else str(tensor.device)
    holder = _StorageHolder.of(pickler, storage, mark)
    arguments = (type(tensor), holder, tensor.dtype, offset, tuple(tensor.shape), tuple(strides), tensor.requires_grad)
    return (rebuild_tensor, arguments, *state)


def _reduce_turned(pickler: Any, tensor: Any) -> Any:
    """A view that shows its memory conjugated, or with the other sign (``z.conj()``, ``z.conj().imag``)."""
    turns = tensor.is_conj(), tensor.is_neg()
    plain = _kept(pickler, turned(tensor.detach(), *turns))
    attributes = device_marks.without_mark(tensor.__dict__) if tensor.__dict__ else None
    grad = tensor.grad if tensor.is_leaf else None
    state = ((attributes, grad), None, None, set_tensor) if attributes or grad is not None else ()
    return (turned_tensor, (plain, *turns, tensor.requires_grad), *state)


def turned(tensor: Any, conjugate: bool, negative: bool) -> Any:
    """A view of the same memory that shows it otherwise; twice is once too often."""
    seen = tensor.conj() if conjugate else tensor
    return torch._neg_view(seen) if negative else seen


@streams.named
def turned_tensor(plain: Any, conjugate: bool, negative: bool, grad: bool) -> Any:
    """A view of a tensor that shows its memory conjugated, or with the other sign."""
    made = turned(plain, conjugate, negative)
    mark = device_marks.tensor_mark(plain)
    if grad:
        made.requires_grad_()
    if mark:
        device_marks.mark_tensor(made, mark)
    return made


def _hooks(pickler: Any, tensor: Any) -> list[Any]:
    """Hooks on its gradient; one that cannot be pickled must not keep a cell from running."""
    if not tensor._backward_hooks:
        return []
    found = list(tensor._backward_hooks.values())
    sent = [hook for hook in found if pickler.can_write(hook)]
    if len(sent) < len(found):
        pickler.remarks.append("without a hook on its gradient, which cannot be pickled")
    return sent


def reduce_over_tensor(pickler: Any, array: Any, tensor: Any) -> Any:
    """A numpy array that looks at a tensor's memory; a small part of a large one that stays is copied."""
    if device_marks.tensor_mark(tensor) or _is_small_view(pickler, array, tensor.untyped_storage()):
        return NotImplemented  # where the tensor goes back to a GPU it has no memory for an array
    storage = tensor.untyped_storage()
    offset = array.__array_interface__["data"][0] - storage.data_ptr()
    holder = _StorageHolder.of(pickler, storage, "")
    return array_over_storage, (holder, array.dtype, array.shape, array.strides, offset, array.flags.writeable)


@streams.named
def storage_over_array(array: Any) -> Any:
    """A torch storage over an array's memory."""
    flat = (array if array.flags.c_contiguous else array.T).reshape(-1).view("u1")
    with warnings.catch_warnings():  # one that cannot be written to
        warnings.simplefilter("ignore")
        return torch.from_numpy(flat).untyped_storage()


@streams.named
def array_over_storage(storage: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """A numpy array over ``storage``, which is on the CPU."""
    memory = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
    return arrays.rebuild_view(memory, dtype, shape, strides, offset, writeable)


def _kept(pickler: Any, thing: Any) -> Any:
    pickler.keep.append(thing)
    return thing


def _is_small_view(pickler: Any, tensor: Any, storage: Any) -> bool:
    """Tell if to send a copy of the view alone (a batch of a large data set, say)."""
    total = storage.nbytes()
    if total <= _SMALL_STORAGE_BYTES or tensor.nbytes * 2 >= total:
        return False
    return not pickler.is_memory_sent(_key(_kept(pickler, storage)))


def _key(storage: Any) -> tuple[int, str]:
    return (storage.data_ptr(), str(storage.device)) if storage.nbytes() else (id(storage), "")


def _reduce_unusual(pickler: Any, tensor: Any) -> Any:
    if tensor.device.type == "meta":
        return NotImplemented
    if tensor.device.type == "cpu":
        return torch.Tensor.__reduce_ex__(tensor, 5)
    mark = str(tensor.device)
    return move_unusual, (mark, _kept(pickler, tensor.detach().cpu()))


class _StorageHolder:
    """One per storage and dump: what the stream's memo knows a storage by."""

    @staticmethod
    def __graph_reduce__(pickler: Any, holder: _StorageHolder) -> Any:
        return _reduce_mapped(pickler, holder) or _reduce_holder(holder)

    def __init__(self, storage: Any, mark: str, array: Any) -> None:
        self.storage = storage
        self.mark = mark
        #: whose memory it is (``torch.from_numpy``)
        self.array = array

    @staticmethod
    def of(pickler: Any, storage: Any, mark: str) -> _StorageHolder:
        key = _key(storage)
        pickler.note_memory_sent(key)
        found: _StorageHolder | None = pickler.holders.get(key)
        if found is None:
            array = pickler.arrays.get(key[0]) if not mark and key[1] == "cpu" else None
            if array is not None and not (array.nbytes == storage.nbytes() and array.flags.forc):
                array = None
            if array is None and not mark and is_foreign(storage):
                array = _named_memory(pickler, storage)
            found = pickler.holders[key] = _StorageHolder(storage, mark, array)
        return found


def is_foreign(storage: Any) -> bool:
    """Tell if the memory is another object's (``from_numpy``, ``frombuffer``): it did not come here as a tensor's."""
    return storage.device.type == "cpu" and not storage.resizable() and not getattr(storage, _PLACED, False)


def _named_memory(pickler: Any, storage: Any) -> Any:
    """Foreign memory as an array over what a name of the notebook holds; None: no name does."""
    size = storage.nbytes()
    owner = buffers.owner_at(pickler, storage.data_ptr(), size) if size else None
    if owner is None:
        return None
    whole = np.asarray(owner) if isinstance(owner, np.ndarray) else np.frombuffer(owner, "u1")
    memory: Any = (whole if whole.flags.c_contiguous else whole.T).reshape(-1).view("u1")
    start = storage.data_ptr() - memory.__array_interface__["data"][0]
    return _kept(pickler, memory[start : start + size])


def _reduce_mapped(pickler: Any, holder: _StorageHolder) -> Any:
    """Memory that is a file: its place in there. (Neither torch's own memory is one, nor what came here.)"""
    storage = holder.storage
    if holder.mark or not is_foreign(storage) or not storage.nbytes():
        return None
    memory = pickler.holders.get(_FILES)
    if memory is None:
        memory = pickler.holders[_FILES] = mapped_files.mapped_memory()
    must_flush = pickler.realm.at_home and not pickler.compact
    found = mapped_files.file_at(storage.data_ptr(), storage.nbytes(), memory, must_flush=must_flush)
    if found is None:
        return None
    if pickler.compact:  # what is in the file is no part of the tensor
        found = ((found[0][0], 0, 0, 0), *found[1:])
    return storage_of_file, found


@streams.named
def storage_of_file(*place: Any) -> Any:
    """The same bytes of the same file, mapped here."""
    return torch.from_numpy(mapped_files.map_file(*place)).untyped_storage()


def _reduce_holder(holder: _StorageHolder) -> Any:
    storage = holder.storage
    size = storage.nbytes()
    if size == 0:
        return place_storage, (holder.mark, b"", 0)
    if holder.array is not None:
        return storage_over_array, (holder.array,)
    if storage.device.type != "cpu":
        storage = storage.cpu()
    memory: Any = (ctypes.c_char * size).from_address(storage.data_ptr())
    memory.owner = storage  # the memory lives as long as anybody's view of it
    return place_storage, (holder.mark, pickle.PickleBuffer(memory), size)


@streams.named
@receiving
def place_storage(reader: Reader, device: str, data: Any, size: int) -> Any:
    """A storage over ``data``; on its device if this is a rank with a GPU, else marked with it."""
    realm = reader.realm
    has_device = realm.has_gpu and not realm.at_home
    if size == 0:
        storage = torch.UntypedStorage(0)
    else:
        words = torch.frombuffer(placed(data), dtype=torch.uint8)
        there = words.to(device_marks.local_device(device)) if device and has_device else words
        is_owned = size <= _RESIZABLE_BYTES or (realm.group is not None and realm.group.owns_memory)
        if there is words and is_owned:
            there = words.clone()
        storage = there.untyped_storage()
    setattr(storage, _PLACED, True)
    if device and not has_device:
        setattr(storage, device_marks.ATTRIBUTE, device)
    return storage


@streams.named
def rebuild_tensor(kind: Any, storage: Any, dtype: Any, offset: int, shape: Any, strides: Any, grad: bool) -> Any:
    """A tensor over ``storage`` (made by :func:`place_storage`)."""
    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, strides)
    mark = getattr(storage, device_marks.ATTRIBUTE, "")
    if kind is torch.nn.Parameter:
        tensor = torch.nn.Parameter(tensor, requires_grad=grad)
    elif kind is not torch.Tensor:
        tensor = torch.Tensor._make_subclass(kind, tensor, grad)
    elif grad:
        tensor.requires_grad_()
    if mark:
        setattr(tensor, device_marks.ATTRIBUTE, mark)
    return tensor


@streams.named
def set_tensor(tensor: Any, state: Any) -> None:
    """Attributes, gradient and hooks on it, set once the tensor is known to the stream."""
    attributes, grad, *hooks = state
    if attributes:
        tensor.__dict__.update(attributes)
    if grad is not None:
        tensor.grad = grad
    for hook in hooks[0] if hooks else ():
        tensor.register_hook(hook)


@streams.named
def move_unusual(mark: str, tensor: Any) -> Any:
    """A sparse or quantised tensor that lived on a device: on the host with a remark in its attributes."""
    setattr(tensor, device_marks.ATTRIBUTE, mark)
    return tensor


# ------------------------------------------------------------------------------ storages and the rest
def reduce_storage(pickler: Any, storage: Any) -> Any:
    """A bare storage (rare): as its holder."""
    mark = getattr(storage, device_marks.ATTRIBUTE, "") if storage.device.type == "cpu" else str(storage.device)
    return give_storage, (_StorageHolder.of(pickler, storage, mark),)


def reduce_typed_storage(_pickler: Any, storage: Any) -> Any:
    """A typed storage (inside torch's own way for sparse tensors)."""
    return make_typed_storage, (storage._untyped_storage, storage.dtype)


@streams.named
def make_typed_storage(untyped: Any, dtype: Any) -> Any:
    """A typed view of an untyped storage."""
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


@streams.named
def give_storage(storage: Any) -> Any:
    """The storage itself."""
    return storage


def reduce_device(_pickler: Any, device: Any) -> Any:
    """``cuda`` comes home as ``cpu`` and goes back as what it was."""
    return place_torch_device, (device_marks.torch_device_mark(device) or str(device),)


@streams.named
@receiving
def place_torch_device(reader: Reader, device: str) -> Any:
    """A device: at home, and where there is no GPU, always the CPU."""
    if device.partition(":")[0] in ("cpu", "meta"):
        return torch.device(device)
    if reader.realm.has_gpu and not reader.realm.at_home:
        return torch.device(device_marks.local_device(device))
    stand_in = torch.device("cpu")
    device_marks.mark_torch_device(stand_in, device)
    return stand_in


def reduce_generator(pickler: Any, generator: Any) -> Any:
    """A random generator with its state; one of a GPU comes home as a CPU one with the same seed.

    The one behind ``torch.rand()`` is the receiver's own: its state travels with that of all libraries.
    """
    if generator is torch.default_generator:
        return by_name(pickler, "torch", "default_generator")
    if generator.device.type != "cpu":
        return make_seeded_generator, (generator.initial_seed(),)
    return make_generator, (generator.get_state(),)


@streams.named
def make_generator(state: Any) -> Any:
    """A CPU generator in this state."""
    generator = torch.Generator()
    generator.set_state(state.clone())
    return generator


@streams.named
def make_seeded_generator(seed: int) -> Any:
    """A CPU generator with this seed."""
    return torch.Generator().manual_seed(seed)


def reduce_script_module(_pickler: Any, module: Any) -> Any:
    """TorchScript has its own format. Its tensors travel beside it: others may look at their memory (``jit.trace``)."""
    file = io.BytesIO()
    torch.jit.save(module, file)
    tensors = {name: tensor.detach() for name, tensor in _tensors_of(module)}
    return load_script_module, (pickle.PickleBuffer(file.getvalue()),), tensors, None, None, share_tensors


@streams.named
def share_tensors(module: Any, tensors: dict[str, Any]) -> None:
    """Let the module's tensors have the memory of ``tensors``."""
    for name, own in _tensors_of(module):
        if name in tensors:
            own.data = tensors[name]


def _tensors_of(module: Any) -> list[tuple[str, Any]]:
    return [*module.named_parameters(), *module.named_buffers()]


@streams.named
def load_script_module(data: Any) -> Any:
    """Read a TorchScript module into host memory."""
    return torch.jit.load(io.BytesIO(data), map_location="cpu")


def reduce_parametrized(_pickler: Any, module: Any) -> Any:
    """A module with parametrizations, whose own class refuses: the class travels by value, the state is its base's."""
    kind = type(module)
    state = kind.__base__.__getstate__(module)  # type: ignore[call-arg]
    return copyreg.__newobj__, (kind,), state  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------- optimisers
def reduce_optimizer(pickler: Any, optimizer: Any) -> Any:
    """With its hooks, which torch leaves out. A learning rate scheduler replaces ``step``, and warns when it finds that
    undone.
    """
    reduced = optimizer.__reduce_ex__(4)
    hooks = {name: each for name, each in vars(optimizer).items() if name.endswith("_hooks") and each}
    if not pickler.can_write(hooks):
        hooks = {}
        pickler.remarks_on_parts.append((optimizer, "without its hooks"))
    is_wrapped = getattr(optimizer.step, _WRAPPED, False)
    if len(reduced) < 3 or type(reduced[2]) is not dict or not hasattr(optimizer, "__setstate__"):
        return reduced
    wrapped = {"step": None, "_opt_called": getattr(optimizer, "_opt_called", None)} if is_wrapped else {}
    return (*reduced[:2], (reduced[2], hooks, wrapped), *(*reduced[3:], None, None)[:2], set_optimizer)


@streams.named
def set_optimizer(optimizer: Any, state: Any) -> None:
    """Its state without the defaults that torch adds, its hooks, and ``step`` replaced as a scheduler does it."""
    own, hooks, wrapped = state
    defaults = dict(own.get("defaults", ()))
    optimizer.__setstate__(own)
    vars(optimizer).update(hooks)
    for name in getattr(optimizer, "defaults", {}).keys() - defaults:
        del optimizer.defaults[name]
    if not wrapped:
        return
    if wrapped["_opt_called"] is not None:
        optimizer._opt_called = wrapped["_opt_called"]
    reference, step = weakref.ref(optimizer), type(optimizer).step

    @functools.wraps(step)
    def noticed(*arguments: Any, **keywords: Any) -> Any:
        mine: Any = reference()
        mine._opt_called = True
        return step(mine, *arguments, **keywords)

    setattr(noticed, _WRAPPED, True)
    optimizer.step = noticed


# ------------------------------------------------------------------------- tensors on a device, compared there
def _digest_reduce(pickler: Any, tensor: Any) -> Any:
    """In a fingerprint a device tensor is the sum of its words times odd weights, computed on the device."""
    grad = tensor.grad if tensor.is_leaf else None
    facts = (str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), tensor.requires_grad)
    return device_fingerprint, (tensor_sums(tensor), *facts, device_marks.without_mark(tensor.__dict__), grad)


def device_fingerprint(*facts: Any) -> None:
    """Only in fingerprints, which nobody loads."""
    raise TypeError("a fingerprint is no graph")


def tensor_sums(tensor: Any) -> list[int]:
    """Weighted sums of a tensor's bytes, 64 MiB at a time, wherever the tensor lives."""
    flat = tensor.detach().contiguous().reshape(-1)
    words = flat.view(torch.uint8)
    sums: list[int] = []
    step = 64 << 20
    for start in range(0, words.numel(), step):
        piece = words[start : start + step]
        wide = piece[: piece.numel() // 8 * 8].view(torch.int64)
        weights = torch.arange(1, 2 * wide.numel() + 1, 2, device=words.device) * 0x9E3779B97F4A7C1
        tail = piece[wide.numel() * 8 :].to(torch.int64)
        places = torch.arange(1, tail.numel() + 1, device=words.device)
        sums += [int((wide * weights).sum()), int((tail * places).sum())]
    return sums


_BY_TYPE: dict[type, Reducer] = {
    torch.UntypedStorage: reduce_storage,
    torch.storage.TypedStorage: reduce_typed_storage,
    torch.device: reduce_device,
    torch.Generator: reduce_generator,
    torch.jit.ScriptModule: reduce_script_module,
    torch.jit.RecursiveScriptModule: reduce_script_module,
}
