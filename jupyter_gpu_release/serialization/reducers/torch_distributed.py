"""torch.distributed: what lives in a process group, which stays with the ranks. Replicas travel as the module that
they wrap; what is spread over the ranks is refused, since one rank has only its part.

Types are known by name, so that nothing of ``torch.distributed`` is imported for the question.
"""

from __future__ import annotations

import pickle
from typing import Any

from ... import streams

WITHOUT_WRAPPER = "without DistributedDataParallel around its module (wrap it again in the next gang)"
#: FSDP's own mark
_FLAT = "_fsdp_flattened"
_FULL_STATE = "get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))"


def reducer_for(kind: type) -> Any:
    """The reducer for a type of torch's that belongs to a process group, None for others."""
    for base in kind.__mro__:
        if base.__name__ in _BY_NAME and base.__module__.startswith("torch."):
            return _BY_NAME[base.__name__]
    return None


def reduce_replica(pickler: Any, replica: Any) -> Any:
    """The module in it: the same object as under any other name of the graph."""
    pickler.remarks.append(WITHOUT_WRAPPER)
    return give_module, (replica.module,)


@streams.named
def give_module(module: Any) -> Any:
    """The module itself."""
    return module


def unwrap_replica(value: Any) -> Any:
    """The part of ``value`` that travels: the module in a replica, else ``value`` itself."""
    return value.module if reducer_for(type(value)) is reduce_replica else value


def is_flat(value: Any) -> bool:
    """Tell if this is a parameter in which FSDP's first version keeps one rank's part."""
    return _FLAT in getattr(value, "__dict__", ())


def refuse_sharded(_pickler: Any, _module: Any) -> Any:
    """FSDP's modules: with some of their parameters they would look whole and not be usable."""
    raise pickle.PicklingError(
        f"FSDP keeps a part of its parameters on each rank; whole is, in all ranks, {_FULL_STATE}"
    )


def refuse_shard(_pickler: Any, _tensor: Any) -> Any:
    """One rank's part of a tensor that is spread over all."""
    raise pickle.PicklingError("it is one rank's part of a sharded tensor; in all ranks, .full_tensor() makes it whole")


def refuse_flat(_pickler: Any, _tensor: Any) -> Any:
    """As above, of FSDP's first version, whose parts nothing but its module can put together."""
    raise pickle.PicklingError(f"it is one rank's part of FSDP's parameters; whole is, in all ranks, {_FULL_STATE}")


_BY_NAME: dict[str, Any] = {
    "DistributedDataParallel": reduce_replica,
    "FullyShardedDataParallel": refuse_sharded,
    "FSDPModule": refuse_sharded,
    "DTensor": refuse_shard,
}
#: reducers that only refuse
REFUSING = frozenset({refuse_sharded, refuse_shard})
