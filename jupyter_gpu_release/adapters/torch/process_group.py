"""The process groups of a cell that goes on elsewhere: what they were made with, and the same once more."""

from __future__ import annotations

import datetime
import gc
import json
import sys
from collections.abc import Mapping
from typing import Any

from ...errors import LoadError
from ..adapter import ImmovableError
from .distributed import holds_shards

_KEY = "jupyter_gpu_release/groups/{}"


def capture(ranks: int) -> dict[str, Any]:
    """Note what the groups of this cell's ``ranks`` were made with; empty: there is none.

    Raises ImmovableError for what cannot be made again.
    """
    if not is_there():
        return {}
    dist: Any = sys.modules["torch.distributed"]
    world, group = dist.distributed_c10d._world, dist.group.WORLD
    if dist.get_world_size() != ranks:
        raise ImmovableError(f"its process group has {dist.get_world_size()} members, the run has {ranks} ranks")
    return {
        "name": world.pg_names[group],
        "ranks": ranks,
        "backend": _backend(world, group),
        "timeout_s": _timeout_s(group),
        "bound": _index(group.bound_device_id),
        "device": _current_device(),
        "fsdp": "torch.distributed.fsdp" in sys.modules,
        "others": [_noted(world, each) for each in world.pg_map if each is not group],
    }


def _noted(world: Any, group: Any) -> dict[str, Any]:
    members = sorted(world.pg_group_ranks[group], key=world.pg_group_ranks[group].__getitem__)
    return {
        "name": world.pg_names[group],
        "ranks": members,
        "backend": _backend(world, group),
        "timeout_s": _timeout_s(group),
        "what": group.group_desc,
    }


def _backend(world: Any, group: Any) -> str:
    name: str = world.pg_map[group][0]
    return world.pg_backend_config[group] if name in ("undefined", "custom") else name


def is_there() -> bool:
    """Tell if the cell has made its process group."""
    dist = sys.modules.get("torch.distributed")
    return bool(dist is not None and dist.is_available() and dist.is_initialized())


def why_of_this_size(names: Mapping[str, Any], ranks: int) -> str:
    """The reason why the gang goes on at its size only, if it does."""
    if not is_there():
        return ""
    only = f"it goes on with {ranks} only"
    for name, value in list(names.items()):
        if not name.startswith("_") and holds_shards(value):
            return f"`{name}` is sharded over {ranks} ranks: {only}"
    if len(sys.modules["torch.distributed"].distributed_c10d._world.pg_map) > 1:
        return f"it has process groups of its own (new_group) among its {ranks} ranks: {only}"
    return ""


def restore(made: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    """Make them again; returns when all ranks have, with the old name of each.

    Raises LoadError for another number of ranks, where there are groups of some of them.
    """
    import torch.distributed as dist

    if made["others"] and made["ranks"] != ranks:
        raise LoadError(
            f"the cell has process groups of its own (new_group): it goes on with {made['ranks']} ranks only"
        )
    _restore_all(made, rank, ranks)
    found = {made["name"]: dist.group.WORLD}
    for each in _of_all_ranks(made["others"], rank, ranks):
        group = _restore_one(each)
        if rank in each["ranks"]:
            found[each["name"]] = group
    return found


def _of_all_ranks(own: list[dict[str, Any]], rank: int, ranks: int) -> list[dict[str, Any]]:
    """All ranks' groups, in one order: each of them is made by all, its members or not. No device is used for that."""
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    store.set(_KEY.format(rank), json.dumps(own))
    told = [each for number in range(ranks) for each in json.loads(store.get(_KEY.format(number)))]
    by_name = {each["name"]: each for each in told}
    return sorted(by_name.values(), key=lambda each: (len(each["name"]), each["name"]))


def _restore_one(made: dict[str, Any]) -> Any:
    import torch.distributed as dist

    more: dict[str, Any] = {} if made["ranks"] == sorted(made["ranks"]) else {"sort_ranks": False}
    if made["timeout_s"]:
        more["timeout"] = datetime.timedelta(seconds=made["timeout_s"])
    return dist.new_group(made["ranks"], backend=made["backend"], group_desc=made["what"], **more)


def _restore_all(made: dict[str, Any], rank: int, ranks: int) -> None:
    import torch
    import torch.distributed as dist

    if made["device"] is not None and made["device"] < torch.cuda.device_count():
        torch.cuda.set_device(made["device"])
    where: dict[str, Any] = {} if ranks > 1 else {"store": dist.HashStore(), "rank": rank, "world_size": ranks}
    if made["timeout_s"]:
        where["timeout"] = datetime.timedelta(seconds=made["timeout_s"])
    if made["bound"] is not None:
        where["device_id"] = torch.device("cuda", made["bound"])
    dist.init_process_group(made["backend"], **where)


def resize_samplers() -> None:
    """Let samplers deal out their data to as many ranks as there are now."""
    module = sys.modules.get("torch.utils.data.distributed")
    if module is None:
        return
    kind = module.DistributedSampler
    for sampler in [each for each in gc.get_objects() if issubclass(type(each), kind)]:
        epoch = sampler.epoch
        kind.__init__(sampler, sampler.dataset, shuffle=sampler.shuffle, seed=sampler.seed, drop_last=sampler.drop_last)
        sampler.epoch = epoch


def _timeout_s(group: Any) -> float:
    for device in group._device_types:
        found = getattr(getattr(group._get_backend(device), "options", None), "_timeout", None)
        if found is not None:
            seconds: float = found.total_seconds()
            return seconds
    return 0.0


def _index(device: Any) -> int | None:
    return None if device is None else device.index


def _current_device() -> int | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    number: int = torch.cuda.current_device()
    return number
