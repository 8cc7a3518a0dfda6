"""``torch.distributed``: parts of what is spread over the ranks of a gang, in the save of a run that goes on.

DTensors, their meshes, and FSDP's modules with all that FSDP keeps beside them are written as they are, less what it
makes again in the next forward pass: each rank reads its own part. What the process has instead of the save (process
groups, streams, FSDP's marks on modules) is put in when it is read. Loaded only for such saves.
"""

from __future__ import annotations

import collections
import copy
import importlib
import itertools
import pickle
import sys
from collections.abc import Callable
from typing import Any

import torch

from ... import streams
from ...errors import LoadError

#: what FSDP makes again when it is needed → what it is before
_FORGOTTEN: dict[str, dict[str, Any]] = {
    "FSDPParam": {
        "all_gather_outputs": [],
        "_unsharded_inner_tensors": [],
        "unsharded_accumulated_grad": None,
        "_sharded_post_forward_param": None,
        "_sharded_post_forward_param_data": None,
        "grad_offload_event": None,
    },
    "FSDPParamGroup": {
        "_all_gather_result": None,
        "_post_reduce_event": None,
        "_reshard_after_forward_event": None,
        "_all_reduce_state": None,
    },
    "FullyShardedDataParallel": {"_unshard_event": None},
    "_FreeEventQueue": {"_queue": collections.deque()},
    "FSDPCommContext": {"all_gather_state": None, "reduce_scatter_states": [], "_last_post_reduce_events": {}},
}
#: how pickle makes an object without calling it
_NEW: Any = object().__reduce_ex__(4)[0]
#: attributes of FSDP's that say if its parameters are put together
_SHARDED = ("sharded_state", "_sharded_state")


# ------------------------------------------------------------------------------------- written
def reduce_member(_pickler: Any, thing: Any) -> Any:
    """A process group, a mesh, or what FSDP keeps beside its modules."""
    for base in type(thing).__mro__:
        if base.__name__ in _REDUCERS:
            return _REDUCERS[base.__name__](thing)
    return NotImplemented


def reduce_tensor(pickler: Any, tensor: Any) -> Any:
    """This rank's part of a tensor, and how all are laid out."""
    if is_whole(pickler, tensor):
        return reduce_whole(pickler, tensor)
    if tensor.grad_fn is not None:
        tensor = tensor.detach()
        pickler.keep.append(tensor)
    grad = tensor.grad if tensor.is_leaf else None
    made = (type(tensor), tensor._local_tensor, tensor._spec, tensor.requires_grad)
    return streams.make_shard, ("tensor", *made), (dict(tensor.__dict__), grad), None, None, streams.fill_shard


def is_whole(pickler: Any, tensor: Any) -> bool:
    """Tell if this is a parameter that FSDP has put together, or will put together."""
    return id(tensor) in _parts(pickler.realm.group)


def reduce_whole(pickler: Any, tensor: Any) -> Any:
    """The part of it that this rank keeps: so it is what it is between two steps."""
    return streams.make_shard, ("part", _parts(pickler.realm.group)[id(tensor)][1])


def _parts(group: Any) -> dict[int, tuple[Any, Any]]:
    if group.parts is None:
        group.parts = {}
        for each in _fsdp_params():
            for name in ("_unsharded_param", "_sharded_post_forward_param"):
                whole = getattr(each, name, None)
                if whole is not None:
                    group.parts[id(whole)] = (whole, each.sharded_param)
    parts: dict[int, tuple[Any, Any]] = group.parts
    return parts


def _fsdp_params() -> list[Any]:
    """Of all modules of this process."""
    module = sys.modules.get("torch.distributed._composable_state")
    states = [found() for found in dict(module._module_state_mapping).values()] if module is not None else []
    groups = [group for state in states for group in getattr(state, "_fsdp_param_groups", ())]
    return [each for group in groups for each in group.fsdp_params]


def has_own_gradients() -> bool:
    """Tell if ranks have gradients that were not put together yet (``set_requires_gradient_sync(False)``)."""
    return any(
        each.unsharded_accumulated_grad is not None
        or getattr(getattr(each, "_unsharded_param", None), "grad", None) is not None
        for each in _fsdp_params()
    )


def reduce_module(_pickler: Any, module: Any) -> Any:
    """A module of FSDP's: its own class, and under names that are the same in each process what FSDP has noted."""
    kind = type(module)
    own = kind.__mro__[getattr(kind, "_orig_cls_mro_index", 2)]
    reduced = module.__reduce_ex__(4)
    if kind.__mro__[1].__name__ != "FSDPModule" or reduced[:2] != (_NEW, (kind,)):
        raise pickle.PicklingError(f"{kind.__name__} is sharded in another way than by fully_shard")
    state = dict(reduced[2])
    marks = [state.pop(name, None) for name in _marks()]
    return streams.make_shard, ("module", own), {"state": state, "marks": marks}, None, None, streams.fill_shard


def reduce_first(_pickler: Any, module: Any) -> Any:
    """A module of FSDP's first version, which holds all that belongs to it itself."""
    maker, arguments, state, *more = _reduce_part_of_fsdp(module)
    return maker, arguments, {"state": state, "marks": [None, None]}, *more


def reduce_freed(_pickler: Any, tensor: Any) -> Any:
    """A tensor whose memory was let go until it is needed."""
    layout = (tensor.dtype, str(tensor.device), tuple(tensor.shape), tensor.stride(), tensor.requires_grad)
    return streams.make_shard, ("freed", type(tensor), *layout)


def _marks() -> tuple[str, str]:
    """Attributes under which torch notes what was done to a module: others in each process."""
    contract = importlib.import_module(
        "torch.distributed._composable.contract"
    )  # the package has a function of that name
    return contract.STATE_KEY, contract.REGISTRY_KEY


def _reduce_group(group: Any) -> Any:
    name = sys.modules["torch.distributed"].distributed_c10d._world.pg_names.get(group)
    if name is None:
        raise pickle.PicklingError("a process group that was destroyed")
    return streams.make_shard, ("group", name)


def _reduce_mesh(mesh: Any) -> Any:
    if not hasattr(mesh, "_dim_group_names"):
        raise pickle.PicklingError(f"torch {torch.__version__} keeps meshes in another way than newer versions")
    return _as_is(mesh, without=("_pg_registry", "_hash"))


def _reduce_spec(spec: Any) -> Any:
    return _as_is(spec, without=("_hash",))


def _reduce_part_of_fsdp(thing: Any) -> Any:
    """Less what belongs to a forward or backward pass that is over."""
    name = next(base.__name__ for base in type(thing).__mro__ if base.__name__ in _FORGOTTEN)
    reduced = _as_is(thing, without=("_unsharded_param",))
    state = reduced[2]
    state |= {each: copy.copy(value) for each, value in _FORGOTTEN[name].items() if each in state}
    state |= {each: type(state[each]).SHARDED for each in _SHARDED if each in state}
    return reduced


def _reduce_stream(stream: Any) -> Any:
    """A stream has nothing in it at a safe point."""
    if type(stream).__module__ == "torch.cpu":
        return NotImplemented
    return streams.make_shard, ("stream", type(stream), stream.priority)


def _as_is(thing: Any, without: tuple[str, ...] = ()) -> Any:
    state = {name: value for name, value in vars(thing).items() if name not in without}
    return streams.make_shard, ("object", type(thing)), state, None, None, streams.fill_shard


_REDUCERS: dict[str, Callable[[Any], Any]] = {
    "ProcessGroup": _reduce_group,
    "DeviceMesh": _reduce_mesh,
    "DTensorSpec": _reduce_spec,
    "FSDPState": _as_is,
    "FSDPParamGroup": _reduce_part_of_fsdp,
    "FSDPParam": _reduce_part_of_fsdp,
    "FSDPCommContext": _reduce_part_of_fsdp,
    "_FreeEventQueue": _reduce_part_of_fsdp,
    "_FSDPDeviceHandle": _as_is,
    "Stream": _reduce_stream,
}


# ---------------------------------------------------------------------------------------- read
def make(group: Any, kind: str, *arguments: Any) -> Any:
    """Make what a save has written; most of it gets its attributes by :func:`fill`.

    Raises LoadError where there are more or fewer ranks than there were.
    """
    if kind != "group" and group.was != torch.distributed.get_world_size():
        raise LoadError(f"it is sharded over {group.was} ranks: it goes on with {group.was} only")
    return _MAKERS[kind](group, *arguments)


def _make_group(group: Any, name: str) -> Any:
    return group.groups[name]


def _make_object(group: Any, kind: Any) -> Any:
    made = kind.__new__(kind)
    if kind.__name__ == "FSDPState":
        group.states.append(made)
    return made


def _make_tensor(_group: Any, kind: Any, local: Any, spec: Any, requires_grad: bool) -> Any:
    return kind(local, spec, requires_grad=requires_grad)


def _make_freed(_group: Any, kind: Any, dtype: Any, device: str, shape: Any, strides: Any, requires_grad: bool) -> Any:
    made = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    made.untyped_storage().resize_(0)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(made, requires_grad=requires_grad)
    return made.requires_grad_(requires_grad)


def _make_module(_group: Any, own: Any) -> Any:
    from torch.distributed.fsdp._fully_shard import _fully_shard as home

    made = own.__new__(own)
    classes = home.cls_to_fsdp_cls
    if own not in classes:
        own_methods = {"__deepcopy__": home._unimplemented_deepcopy}
        classes[own] = type(f"FSDP{own.__name__}", (home.FSDPModule, own), own_methods)
    made.__class__ = classes[own]
    return made


def _make_stream(_group: Any, kind: Any, priority: int) -> Any:
    return kind(priority=priority)


_MAKERS: dict[str, Callable[..., Any]] = {
    "group": _make_group,
    "object": _make_object,
    "tensor": _make_tensor,
    "part": lambda _group, part: part,
    "freed": _make_freed,
    "module": _make_module,
    "stream": _make_stream,
}


def fill(group: Any, thing: Any, state: Any) -> None:
    """Set its attributes."""
    if isinstance(thing, torch.Tensor):
        attributes, grad = state
        thing.__dict__.update(attributes)
        if grad is not None:
            thing.grad = grad
    elif isinstance(thing, torch.nn.Module):
        _fill_module(thing, **state)
    else:
        vars(thing).update(state)
        if "_dim_group_names" in state:
            _fill_mesh(group, thing)
        elif "placements" in state:
            thing._hash = None


def _fill_module(module: Any, state: dict[str, Any], marks: list[Any]) -> None:
    module.__setstate__(state)
    for name, mark in zip(_marks(), marks, strict=True):
        if mark is not None:
            module.__dict__[name] = mark


def _fill_mesh(group: Any, mesh: Any) -> None:
    names = mesh._dim_group_names
    found = {name: group.groups[name] for name in names if name is not None}
    mesh._dim_group_names = [name if name is None else found[name].group_name for name in names]
    mesh._pg_registry = {each.group_name: each for each in found.values()}
    mesh._hash = None


def settle(group: Any) -> None:
    """All is read, and modules are where they stay: note them as FSDP does."""
    from torch.distributed import _composable_state
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    known = _composable_state._module_state_mapping
    for state in group.states:
        for module in state._modules:
            if module not in known:
                _composable_state._insert_module_state(module, state)
    numbers = [each._orig_param_uid for each in _fsdp_params() if hasattr(each, "_orig_param_uid")]
    if numbers and hasattr(_fsdp_param, "_orig_param_uid_counter"):
        _fsdp_param._orig_param_uid_counter = itertools.count(
            max(numbers) + 1 + next(_fsdp_param._orig_param_uid_counter)
        )
