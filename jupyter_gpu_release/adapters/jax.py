"""JAX: arrays, as numpy arrays on the way, and settings."""

from __future__ import annotations

import sys
from typing import Any

from .. import streams
from .adapter import Adapter, ImmovableError, LibrarySettings, Reducer, Values

_SETTINGS = {
    "jax_enable_x64": False,
    "jax_debug_nans": False,
    "jax_debug_infs": False,
    "jax_disable_jit": False,
    "jax_default_matmul_precision": None,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_default_prng_impl": "threefry2x32",
}


def reduce_array(_pickler: Any, array: Any) -> Any:
    """A whole array; it goes to the receiver's default device, which is the GPU where there is one."""
    import jax
    import numpy as np

    if not array.is_fully_addressable or jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        return NotImplemented
    return make_jax, (np.asarray(array),) if not array.aval.weak_type else (np.asarray(array), True)


def reduce_rule(_pickler: Any, rule: Any) -> Any:
    """A function with a derivative of its own (``jax.custom_vjp``), whose class takes the function when it is made."""
    return object.__new__, (type(rule),), vars(rule)


@streams.named
def make_jax(array: Any, is_weak: bool = False) -> Any:
    """A JAX array on the default device; ``is_weak``: it takes the type of what it is computed with."""
    import jax

    if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype:
        made = jax.device_put(array)
    else:
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            made = jax.device_put(array)  # whatever is set here: it came from where such arrays are made
    if is_weak:
        made.aval = made.aval.update(weak_type=True)
    return made


# ----------------------------------------------------------------------------- classes that are trees
def _register(jax: Any, cls: type, flatten: Any, unflatten: Any) -> None:
    trees = jax.tree_util
    if hasattr(cls, "tree_flatten_with_keys"):
        trees.register_pytree_with_keys_class(cls)
    elif getattr(flatten, "__qualname__", "").startswith("register_dataclass."):
        fields = {name: list(value) for name, value in _closed_over(flatten).items()}
        trees.register_dataclass(cls, **fields, drop_fields=_left_out(cls, fields))
    elif getattr(flatten, "__qualname__", "").startswith("register_pytree_with_keys."):
        trees.register_pytree_with_keys(cls, _closed_over(flatten)["flatten_with_keys"], unflatten)
    else:
        trees.register_pytree_node(cls, flatten, unflatten)


def _closed_over(function: Any) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _left_out(cls: Any, fields: dict[str, list[str]]) -> list[str]:
    used = {name for names in fields.values() for name in names}
    return [name for name in getattr(cls, "__dataclass_fields__", ()) if name not in used]


def _settings(jax: Any) -> Values:
    return {name: jax.config.values[name] for name in _SETTINGS if name in jax.config.values}


def _set(jax: Any, name: str, value: Any) -> None:
    jax.config.update(name, value)


class JaxAdapter(Adapter):
    """Arrays; keys, tracers and the rest go JAX's own way."""

    name = "jax"
    can_use_gpu = True

    def group_facts(self, ranks: int) -> dict[str, Any]:
        distributed = sys.modules.get("jax._src.distributed")
        if getattr(getattr(distributed, "global_state", None), "client", None) is not None:
            raise ImmovableError("jax.distributed is initialised, and cannot be a second time")
        return {}

    def says_memory_is_out(self, error: str) -> bool:
        return "RESOURCE_EXHAUSTED" in error

    carried_calls = (
        "register_pytree_node",
        "register_pytree_node_class",
        "register_pytree_with_keys",
        "register_pytree_with_keys_class",
        "register_dataclass",
        "register_static",
    )
    settings = (LibrarySettings("jax", _settings, lambda _: _SETTINGS, _set),)

    def lacks_gpu(self, error: str) -> bool:
        return "no platforms that are instances of" in error

    def reducer_for(self, kind: type) -> Reducer | None:
        return {"ArrayImpl": reduce_array, "custom_vjp": reduce_rule}.get(kind.__name__)

    def registration_of(self, cls: type) -> Any:
        return getattr(sys.modules.get("jax._src.tree_util"), "_registry", {}).get(cls)

    def register_class(self, cls: type, registration: Any) -> None:
        if self.registration_of(cls) is None:
            _register(sys.modules["jax"], cls, *registration)

    def has_touched_gpu(self) -> bool:
        bridge = sys.modules.get("jax._src.xla_bridge")
        return any(name != "cpu" for name in getattr(bridge, "_backends", ()))


ADAPTER = JaxAdapter()
