"""Names of this package's functions and classes in pickles. They stay when the code moves.

A pickle names what rebuilds a value by module and name. For what is written to the store that module is always this
one: here is where each of them lives today. A name is never taken away, and never means something else.
"""

from __future__ import annotations

import importlib
import types
from typing import Any, TypeVar

_NAMES = {
    ".serialization.rebuild": "make_function set_function make_class set_class referred fill_cached_function",
    ".serialization.exceptions": "make_exception set_exception",
    ".serialization.instances": "make_instance set_instance set_own",
    ".serialization.unpickler": "find_global follow_recipe",
    ".serialization.process_state.library_settings": "PackedSetting",
    ".serialization.sharing.numbered_parts": "PartOf",
    ".serialization.sharing.array_memory": "Layout Place",
    ".adapters.accelerate": "make_sharing fill_shared",
    ".adapters.cupy": "place_array",
    ".adapters.ipywidgets": "fill_widget",
    ".adapters.ipython": "ShownAs ToldIpython shell_here",
    ".adapters.jax": "make_jax",
    ".adapters.keras": (
        "rebuild_keras_model make_keras_object fill_keras_object make_keras_container fill_keras_container "
        "make_keras_graph link_keras_graph"
    ),
    ".adapters.numpy.arrays": "view_as set_attributes rebuild_times rebuild_view make_ufunc record_at",
    ".adapters.numpy.generators": "make_drawing set_drawing",
    ".adapters.numpy.mapped_files": "map_file view_of_map",
    ".adapters.numpy.settings": "ToldNumpy",
    ".adapters.pandas": "make_block make_column",
    ".adapters.stdlib.buffers": "array_over_buffer ctypes_over_buffer",
    ".adapters.stdlib.code_objects": "make_code",
    ".adapters.stdlib.context_variables": "make_variable set_variable",
    ".adapters.stdlib.environment": "WorkingFolder PathPlace",
    ".adapters.stdlib.iterators": "set_tee",
    ".adapters.stdlib.log_settings": "ToldLogging set_handler",
    ".adapters.stdlib.sqlite": "ToldSqlite",
    ".adapters.stdlib.thread_locals": "Mark",
    ".adapters.stdlib.random_numbers": "make_random set_random",
    ".adapters.singletons": "find_attribute",
    ".adapters.stdlib.values": (
        "make_cell set_cell make_weakref dead_weakref make_lru_cache make_cached_property standard_stream "
        "import_module view_bytes fill_container make_weak_proxy make_mapping_proxy own_attribute replaced_function "
        "make_finalizer dead_finalizer make_type_parameter fill_weak_container make_weak_method"
    ),
    ".adapters.tensorflow": "rebuild_tensorflow_function usual_strategy",
    ".adapters.torch.distributed": "give_module give_replica make_shard fill_shard",
    ".adapters.torch.operators": "make_operator find_operator",
    ".adapters.torch.tensors": (
        "array_over_storage storage_over_array move_unusual rebuild_tensor set_tensor storage_of_file "
        "give_storage make_typed_storage make_generator make_seeded_generator load_script_module share_tensors "
        "set_optimizer place_storage place_torch_device turned_tensor"
    ),
    ".adapters.traitlets": "set_traits",
    ".adapters.xgboost": "rebuild_xgboost_data",
    ".functions.api": "GpuFunction make_gpu_function",
    ".functions.map_worker": "call_items await_items",
    ".functions.sweep_run": "drive_sweep",
    ".protocol.cell": "Frame FailedError FailedFrames LastOutput",
    ".client.results": "Results",
    ".cell_api.ranks": "Ranks ranks",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

Named = TypeVar("Named", bound=Any)


def named(thing: Named) -> Named:
    """Have pickles find a function or class here (a decorator, for those that ``_NAMES`` lists)."""
    for each in (thing, *(vars(thing).values() if isinstance(thing, type) else ())):
        if isinstance(each, type | types.FunctionType):
            each.__module__ = __name__
    return thing


def __getattr__(name: str) -> Any:
    """The function or class of this name, which is imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOMES[name], __package__), name)
    return found
