"""``torch.distributed``: what lives in a process group, which stays with the ranks. Replicas travel as the module that
they wrap; what is spread over the ranks is refused, since one rank has only its part. In the save of a run that goes on
both travel as they are (see :mod:`.sharding`).

Types are known by name, so that nothing of ``torch.distributed`` is imported for the question.
"""

from __future__ import annotations

import inspect
import itertools
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from ... import streams
from ...errors import LoadError
from ..adapter import GroupState, Reader, Reducer, receiving, refusing

WITHOUT_WRAPPER = "without DistributedDataParallel around its module (wrap it again in the next gang)"
#: types of what is spread over the ranks of a gang, or says how
_SPREAD = frozenset({"FSDPModule", "FullyShardedDataParallel", "DTensor", "DeviceMesh"})
_MOST_LOOKED_AT = 100
#: FSDP's own mark
_FLAT = "_fsdp_flattened"
_FULL_STATE = "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"


def reducer_for(kind: type) -> Reducer | None:
    """The reducer for a class that belongs to a process group, None for others."""
    for base in kind.__mro__:
        if base.__name__ in _BY_NAME and base.__module__.startswith("torch."):
            return _BY_NAME[base.__name__]
    return None


def reduce_replica(pickler: Any, replica: Any) -> Any:
    """The module in it: the same object as under any other name of the graph.

    For a cell that goes on elsewhere also what it was wrapped with.
    """
    if (group := pickler.realm.group) is not None:
        try:
            return give_replica, (replica.module, replica_arguments(replica))
        except pickle.PicklingError:
            if group.is_whole:
                raise
    pickler.remarks.append(WITHOUT_WRAPPER)
    return give_module, (replica.module,)


def replica_arguments(replica: Any) -> dict[str, Any]:
    """Arguments that a replica was made with; raises PicklingError for what cannot be made again."""
    kind, group = type(replica), sys.modules["torch.distributed"].group.WORLD
    own = {
        "a class of its own": kind.__name__ != "DistributedDataParallel",
        "a process group of its own": replica.process_group is not group,
        "delay_all_reduce_named_params": bool(getattr(replica, "_delay_all_reduce_params", ())),
        "mixed_precision": getattr(replica, "mixed_precision", None) is not None,
        "hooks": any(getattr(replica, name, None) for name in _HOOKS),
    }
    if refused := next((what for what, has in own.items() if has), None):
        raise pickle.PicklingError(f"DistributedDataParallel with {refused} is not wrapped again")
    caps = getattr(replica, "bucket_bytes_cap_list", None)
    found = {name: getattr(replica, name) for name in _KEPT if hasattr(replica, name)} | {"init_sync": False}
    if caps:
        found["bucket_cap_mb_list"] = [cap >> 20 for cap in caps]
    elif not replica.bucket_bytes_cap_default:
        found["bucket_cap_mb"] = replica.bucket_bytes_cap / (1 << 20)
    known = inspect.signature(kind.__init__).parameters
    if "forward_sync_buffers" in found:
        del found["broadcast_buffers"]
    kept = {name: value for name, value in found.items() if name in known}
    return {"arguments": kept, "hooks": list(replica._comm_hooks), "training": replica.training}


def wrap_again(replica: Any, module: Any, made: dict[str, Any]) -> None:
    """Make of an empty replica what it was. All ranks come here in the same order."""
    type(replica).__init__(replica, module, **made["arguments"])
    replica.training = made["training"]
    for hook, state in made["hooks"]:
        replica.register_comm_hook(state, hook)


def holds_shards(value: Any) -> bool:
    """Tell if this is spread over the ranks, or what is in it at first sight."""
    return any(base.__name__ in _SPREAD for each in _in(value) for base in type(each).__mro__)


def _in(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, list | tuple):
        yield from value[:_MOST_LOOKED_AT]
    elif isinstance(value, dict):
        yield from itertools.islice(value.values(), _MOST_LOOKED_AT)
    elif isinstance(groups := getattr(value, "param_groups", None), list) and groups:  # an optimizer
        yield from groups[0].get("params", ())[:_MOST_LOOKED_AT]
    elif type(value).__module__ == "__main__":
        yield from itertools.islice(getattr(value, "__dict__", {}).values(), _MOST_LOOKED_AT)


def join_again(group: GroupState) -> None:
    """Wrap replicas again, and let FSDP know the modules that were read."""
    replicas, group.replicas = group.replicas, []
    for replica, module, made in replicas:
        wrap_again(replica, module, made)
    if group.states:
        from . import sharding

        sharding.settle(group)


def has_own_gradients() -> bool:
    """Tell if FSDP's ranks have gradients that were not put together yet."""
    if "torch.distributed.fsdp" not in sys.modules:
        return False
    from . import sharding

    return sharding.has_own_gradients()


#: arguments of a replica that are its attributes, too
_KEPT = (
    "device_ids",
    "output_device",
    "dim",
    "broadcast_buffers",
    "forward_sync_buffers",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "static_graph",
    "skip_all_reduce_unused_params",
    "batched_grad_copy",
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@streams.named
def give_module(module: Any) -> Any:
    """The module itself."""
    return module


@streams.named
@receiving
def give_replica(reader: Reader, module: Any, made: dict[str, Any]) -> Any:
    """A replica in a rank that goes on; elsewhere the module in it."""
    if reader.realm.group is None:
        return module
    from torch.nn.parallel import DistributedDataParallel

    replica = DistributedDataParallel.__new__(DistributedDataParallel)
    reader.realm.group.replicas.append((replica, module, made))
    return replica


@streams.named
@receiving
def make_shard(reader: Reader, kind: str, *arguments: Any) -> Any:
    """A part of what is spread over the ranks of a gang, in the gang that goes on; nowhere else."""
    if reader.realm.group is None:
        raise LoadError("each rank of its gang has a part of it")
    from . import sharding

    return sharding.make(reader.realm.group, kind, *arguments)


@streams.named
@receiving
def fill_shard(reader: Reader, thing: Any, state: dict[str, Any]) -> None:
    """The rest of it, set once it is known to the stream."""
    from . import sharding

    sharding.fill(reader.realm.group, thing, state)


def unwrap_replica(value: Any) -> Any:
    """The part of ``value`` that travels: the module in a replica, else ``value`` itself."""
    return value.module if reducer_for(type(value)) is reduce_replica else value


def is_flat(value: Any) -> bool:
    """Tell if this is a parameter in which FSDP's first version keeps one rank's part."""
    return _FLAT in getattr(value, "__dict__", ())


def sharding_of(pickler: Any) -> Any:
    """Reducers for what is spread over the ranks; None where it does not travel."""
    if pickler.realm.group is None or not pickler.realm.group.is_whole:
        return None
    from . import sharding

    return sharding


@refusing
def reduce_sharded(pickler: Any, module: Any) -> Any:
    """FSDP's modules go on with their ranks; elsewhere, with some of their parameters, they would look whole."""
    found = sharding_of(pickler)
    return refuse_sharded(pickler, module) if found is None else found.reduce_module(pickler, module)


@refusing
def reduce_shard(pickler: Any, tensor: Any) -> Any:
    """One rank's part of a tensor, as above."""
    found = sharding_of(pickler)
    return refuse_shard(pickler, tensor) if found is None else found.reduce_tensor(pickler, tensor)


def reduce_member(pickler: Any, thing: Any) -> Any:
    """Groups, meshes of them, and what FSDP keeps beside its modules."""
    found = sharding_of(pickler)
    return NotImplemented if found is None else found.reduce_member(pickler, thing)


@refusing
def reduce_first(pickler: Any, module: Any) -> Any:
    """A module of FSDP's first version, as above."""
    found = sharding_of(pickler)
    return refuse_sharded(pickler, module) if found is None else found.reduce_first(pickler, module)


def refuse_sharded(_pickler: Any, _module: Any) -> Any:
    """Refuse a module that would look whole."""
    raise pickle.PicklingError(
        f"FSDP keeps a part of its parameters on each rank; whole is, in all ranks, {_FULL_STATE}"
    )


def refuse_shard(_pickler: Any, _tensor: Any) -> Any:
    """Refuse a part that would look whole."""
    raise pickle.PicklingError("it is one rank's part of a sharded tensor; in all ranks, .full_tensor() makes it whole")


def refuse_flat(_pickler: Any, _tensor: Any) -> Any:
    """As above, of FSDP's first version, whose parts nothing but its module can put together."""
    raise pickle.PicklingError(f"it is one rank's part of FSDP's parameters; whole is, in all ranks, {_FULL_STATE}")


@refusing
def refuse_loader_iterator(_pickler: Any, _iterator: Any) -> Any:
    """It has worker processes, or a generator."""
    raise pickle.PicklingError("an iterator of a DataLoader stays where it runs (persistent_workers=True keeps one)")


_BY_NAME: dict[str, Reducer] = {
    "_BaseDataLoaderIter": refuse_loader_iterator,
    "DistributedDataParallel": reduce_replica,
    "FullyShardedDataParallel": reduce_first,
    "FSDPModule": reduce_sharded,
    "DTensor": reduce_shard,
    "ProcessGroup": reduce_member,
    "DeviceMesh": reduce_member,
    "DTensorSpec": reduce_member,
    "FSDPState": reduce_member,
    "FSDPParamGroup": reduce_member,
    "FSDPParam": reduce_member,
    "FSDPCommContext": reduce_member,
    "Stream": reduce_member,
    "_FreeEventQueue": reduce_member,
    "_FSDPDeviceHandle": reduce_member,
}
