"""Brings an object of the notebook to what came back for it, so that whoever holds it sees what the run did to it."""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import itertools
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

from ...adapters import cupy
from ...adapters.stdlib import cached_functions
from ...adapters.torch import device_marks
from ...adapters.users_code import is_of_the_user
from .. import set_order
from .array_memory import layout_of

#: larger arrays and shared tensors are exchanged instead, so that what came back stays mapped from its file
_LARGEST_COPIED_BYTES = 256 << 20
#: smaller ones are not mapped, so a copy costs nothing later
_SMALL_BYTES = 1 << 20
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_CONTAINERS = (list, dict, set, bytearray, collections.deque)
_PLAIN_BASES = (object, *_CONTAINERS, collections.defaultdict, collections.OrderedDict, types.SimpleNamespace)
_PARAMETRIZE = "torch.nn.utils.parametrize"
#: their objects know themselves in ways that only they can mend
_NOT_UPDATED = ("matplotlib", "IPython", "ipykernel", "ipywidgets")


def update_in_place(old: Any, new: Any, stale: set[str]) -> bool:
    """Make ``old`` what ``new`` is. False: it cannot be made so, and nothing has happened to it.

    ``stale`` gets the attributes (``Class.name``) that a class of the user's leaves out of what travels: they stay.
    """
    kind = type(old)
    if not is_alike(old, new) or isinstance(old, type | types.ModuleType | types.FunctionType):
        return False
    library = module_of(kind).partition(".")[0]
    if library in _NOT_UPDATED:
        return False
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(old, numpy.ndarray):
        return _update_array(old, new) if kind is numpy.ndarray else _update_subclass(numpy, old, new)
    if library == "numpy":
        return module_of(kind).startswith("numpy.random") and _update_generator(numpy, old, new)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(old, torch.Tensor):
        return _update_tensor(torch, old, new)
    if library == "pandas":
        return _update_frame(old, new)
    if isinstance(old, array.array):
        return old.typecode == new.typecode and _update_slice(old, new) and _update_attributes(old, new, stale)
    if isinstance(old, random.Random) and kind.setstate is random.Random.setstate:
        old.setstate(new.getstate())
        return _update_attributes(old, new, stale)
    if kind is functools._lru_cache_wrapper:
        return cached_functions.update(old, new)
    if not is_open(kind):
        return False
    if kind is not type(new):
        old.__class__ = type(new)
    return _update_object(old, new, stale)


def is_alike(old: Any, new: Any) -> bool:
    """Tell if they are of one class; torch gives a module whose parameters are parametrized a class of its own."""
    return type(old) is type(new) or (_PARAMETRIZE in sys.modules and _unparametrized(old) is _unparametrized(new))


def _unparametrized(thing: Any) -> type | None:
    kind = type(thing)
    return kind.__base__ if module_of(kind) == _PARAMETRIZE and "__getstate__" in vars(kind) else kind


def _update_generator(numpy: Any, old: Any, new: Any) -> bool:
    """numpy's generators of random numbers, of which others draw as well; what has spawned others is exchanged."""
    mine, theirs = (getattr(each, "_bit_generator", each) for each in (old, new))
    if type(mine) is not type(theirs) or not isinstance(mine, numpy.random.BitGenerator):
        return False
    spawned = [getattr(getattr(each, "seed_seq", None), "n_children_spawned", 0) for each in (mine, theirs)]
    if spawned[0] != spawned[1]:
        return False
    if hasattr(old, "set_state"):
        old.set_state(new.get_state(legacy=False))
    else:
        mine.state = theirs.state
    return True


def module_of(kind: type) -> str:
    """The name of a class's module; a class may have taken it away."""
    return str(getattr(kind, "__module__", ""))


def is_open(kind: type) -> bool:
    """Tell if all that its objects are is in attributes, slots and items.

    What ends with its object (``__del__`` frees a handle of a C library) cannot be handed to another one.
    """
    if hasattr(kind, "__del__"):
        return False
    base: Any = kind
    while base.__flags__ & _HEAP_TYPE:
        if base.__basicsize__ != _size_in_python(base):
            return False
        base = base.__base__
    return base in _PLAIN_BASES and kind is not object


def _size_in_python(kind: Any) -> int:
    """Size of its objects if it is a class written in Python, which adds nothing but slots and two pointers."""
    slots = vars(kind).values() if "__slots__" in vars(kind) else ()
    pointers = sum(isinstance(each, types.MemberDescriptorType) for each in slots)
    pointers += kind.__weakrefoffset__ > 0 and not kind.__base__.__weakrefoffset__
    pointers += kind.__dictoffset__ > 0 and not kind.__base__.__dictoffset__
    size: int = kind.__base__.__basicsize__ + 8 * pointers
    return size


# ---------------------------------------------------------------------------------------------- memory
def _update_array(old: Any, new: Any) -> bool:
    is_alike = old.shape == new.shape and old.dtype == new.dtype
    if not is_alike or not old.flags.writeable or old.nbytes > _LARGEST_COPIED_BYTES:
        return False
    if cupy.array_mark(old) != cupy.array_mark(new):
        return False
    old[...] = new
    if not new.flags.writeable:
        old.flags.writeable = False
    return True


def _update_subclass(numpy: Any, old: Any, new: Any) -> bool:
    """A masked array, a matrix, …: its memory, and its attributes, of which arrays stay themselves, too."""
    if isinstance(old, numpy.memmap) or old.dtype.hasobject:
        return False
    if not _update_array(*(numpy.ndarray.view(each, numpy.ndarray) for each in (old, new))):
        return False
    mine, theirs = getattr(old, "__dict__", None), getattr(new, "__dict__", None)
    if mine is None or theirs is None:
        return True
    kept = {
        name: value
        for name, value in mine.items()
        if type(value) is type(theirs.get(name)) is numpy.ndarray and _update_array(value, theirs[name])
    }
    mine.clear()
    mine.update(theirs)
    mine.update(kept)
    return True


def _update_tensor(torch: Any, old: Any, new: Any) -> bool:
    now, then = layout_of(old), layout_of(new)
    if now is None or then is None or old.dtype != new.dtype or old.grad_fn is not None or old.is_inference():
        return False
    is_alike = (now.shape, now.strides) == (then.shape, then.strides)
    if is_alike and (old.nbytes <= _SMALL_BYTES or (_is_shared(torch, old) and old.nbytes <= _LARGEST_COPIED_BYTES)):
        with torch.no_grad():
            old.detach().copy_(new.detach())
    elif _is_shared(torch, old) and is_alike:
        return False
    else:
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


def _is_shared(torch: Any, tensor: Any) -> bool:
    """Tell if something else looks at a tensor's memory (the tensor and the storage that is asked count two)."""
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count > 2


# --------------------------------------------------------------------------------------------- objects
def _update_frame(old: Any, new: Any) -> bool:
    """Frames and series: their manager, of which blocks that look as before keep their memory."""
    from ...adapters.pandas import is_plain

    if not all("_mgr" in (dict_of(each) or ()) for each in (old, new)):
        return False
    for mine, theirs in zip(old._mgr.blocks, new._mgr.blocks, strict=False):
        values = mine.values, theirs.values
        is_alone = mine.refs is not None and not mine.refs.has_reference()
        if is_alone and all(type(each).__name__ == "ndarray" for each in values) and _update_array(*values):
            theirs.values = mine.values
            theirs.refs = mine.refs
            theirs.refs.add_reference(theirs)
    object.__setattr__(old, "_mgr", new._mgr)
    for name in set(vars(new)) - {"_mgr", "_flags", "_item_cache"}:
        object.__setattr__(old, name, vars(new)[name])
    for name in set(vars(old)) - set(vars(new)):
        if not name.startswith("_") and is_plain(vars(old)[name]):  # others do not travel
            object.__delattr__(old, name)
    with contextlib.suppress(AttributeError):
        old.flags.allows_duplicate_labels = new.flags.allows_duplicate_labels
        vars(old).get("_item_cache", {}).clear()
    return True


def memory_of_frame(thing: Any) -> Iterator[int]:
    """Ids of the arrays that a frame or series consists of. Others may share them until somebody writes."""
    manager = getattr(thing, "__dict__", {}).get("_mgr") if module_of(type(thing)).startswith("pandas") else None
    blocks = getattr(manager, "blocks", ())
    numpy = sys.modules.get("numpy")
    for part in itertools.chain.from_iterable((each.values, *(dict_of(each.values) or {}).values()) for each in blocks):
        yield id(part)
        while numpy is not None and isinstance(part, numpy.ndarray):  # what it is a view of
            part = part.base
            yield id(part)


def _update_object(old: Any, new: Any, stale: set[str]) -> bool:
    return (not isinstance(old, _CONTAINERS) or _update_items(old, new)) and _update_attributes(old, new, stale)


def _update_attributes(old: Any, new: Any, stale: set[str]) -> bool:
    attributes, theirs = dict_of(old), dict_of(new)
    if attributes is not None and theirs is not None and attributes is not theirs:
        stayed = _not_sent(old, attributes, theirs)
        left_out = stayed.keys() - theirs.keys()
        if left_out and is_of_the_user(type(old).__getstate__):  # libraries know what they leave out
            stale.update(f"{type(old).__name__}.{name}" for name in left_out)
        attributes.clear()
        attributes.update(stayed | theirs)
    for member in _members(type(old)):
        try:
            value = member.__get__(new, type(new))
        except AttributeError:  # empty
            with contextlib.suppress(AttributeError):
                member.__delete__(old)
        else:
            member.__set__(old, value)
    return True


def _not_sent(old: Any, attributes: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Attributes (a cache, a lock) that its class leaves out of what travels."""
    if getattr(type(old).__getstate__, "__objclass__", None) is object:
        return {}
    try:
        state = old.__getstate__()
    except Exception:  # noqa: BLE001 - the user's code; other names are still to be bound
        state = theirs
    return {name: value for name, value in attributes.items() if name not in state} if type(state) is dict else {}


def _update_items(old: Any, new: Any) -> bool:
    if isinstance(old, dict):
        # an OrderedDict keeps an order of its own, which dict's methods do not know
        base = collections.OrderedDict if isinstance(old, collections.OrderedDict) else dict
        base.clear(old)
        for key, value in base.items(new):
            base.__setitem__(old, key, value)
        if isinstance(old, collections.defaultdict):
            old.default_factory = new.default_factory
    elif isinstance(old, set):
        set_order.copy_content(old, new)
    elif isinstance(old, collections.deque):
        if old.maxlen != new.maxlen:
            return False
        collections.deque.clear(old)
        collections.deque.extend(old, new)
    else:
        return _update_slice(old, new)
    return True


def _update_slice(old: Any, new: Any) -> bool:
    kind: Any = next(each for each in (list, bytearray, array.array) if isinstance(old, each))
    try:
        kind.__setitem__(old, slice(None), new)
    except BufferError:  # others look at its memory, and it has another length now
        return False
    return True


def dict_of(thing: Any) -> dict[str, Any] | None:
    """The attributes of an object, past whatever its class says."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def _members(kind: type) -> Iterator[Any]:
    for cls in kind.__mro__:
        if "__slots__" in vars(cls):
            yield from (each for each in vars(cls).values() if isinstance(each, types.MemberDescriptorType))
