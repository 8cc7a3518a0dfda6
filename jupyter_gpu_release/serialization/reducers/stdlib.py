"""Reducers for things of the standard library that pickle and cloudpickle refuse, or take along in a surprising way."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import io
import operator
import pickle
import random
import struct
import sys
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

from cloudpickle import cloudpickle

from ...errors import CannotSendError
from ...store.mapped.memory import address_of
from .. import rebuild, unpickler
from ..identity import is_of_the_user
from . import shared_state, torch_distributed


def reduce_cell(_pickler: Any, cell: types.CellType) -> Any:
    """A closure's cell: shared cells stay shared, and a closure may refer to itself."""
    try:
        contents = cell.cell_contents
    except ValueError:
        return rebuild.make_cell, ()
    return rebuild.make_cell, (), (contents,), None, None, rebuild.set_cell  # pickle skips a state of None


#: arguments of ``types.CodeType`` that stand before the file's name
_BEFORE_FILENAME = 10


def reduce_code(_pickler: Any, code: types.CodeType) -> Any:
    """Keeps the file's name (cloudpickle 3.1.3 drops it): tracebacks and ``inspect`` find the cell's text by it."""
    make, arguments = cloudpickle._code_reduce(code)
    own_copy = "".join(code.co_filename)  # shared with another string or not: the same bytes
    return make, (*arguments[:_BEFORE_FILENAME], own_copy, *arguments[_BEFORE_FILENAME + 1 :])


def reduce_module(pickler: Any, module: types.ModuleType) -> Any:
    """By name when it is imported, else by value (cloudpickle)."""
    if module.__name__ not in sys.modules:
        return NotImplemented
    pickler.modules.add(module.__name__)
    return rebuild.import_module, (module.__name__,)


def reduce_weakref(_pickler: Any, reference: weakref.ref[Any]) -> Any:
    """A weak reference to something (else) in the graph."""
    target = reference()
    return (rebuild.dead_weakref, ()) if target is None else (rebuild.make_weakref, (target,))


def reduce_weak_proxy(_pickler: Any, proxy: Any) -> Any:
    """A weak proxy of something (else) in the graph: pickle would take it for that thing."""
    return rebuild.make_weak_proxy, (rebuild.proxied(proxy),)


def reduce_weak_mapping(_pickler: Any, mapping: Any) -> Any:
    """The entries that are alive."""
    return type(mapping), (dict(mapping),)


def reduce_lru_cache(pickler: Any, function: Any) -> Any:
    """With what it remembers; a library's own by reference (pickle's own way)."""
    is_importable = _is_importable(function)
    if is_importable and not is_of_the_user(function.__wrapped__):
        return NotImplemented
    from . import cached_functions

    state = cached_functions.state_of(pickler, function)
    if is_importable:
        pickler.modules.add(function.__module__)
        arguments = function.__module__, function.__qualname__
        return rebuild.find_attribute, arguments, state, None, None, rebuild.fill_cached_function
    settings = function.cache_parameters()
    parts = function.__wrapped__, settings["maxsize"], settings["typed"]
    return rebuild.make_lru_cache, parts, state, None, None, rebuild.fill_cached_function


def _is_importable(function: Any) -> bool:
    module = sys.modules.get(function.__module__)
    if module is None or module.__name__ == "__main__":
        return False
    try:
        return operator.attrgetter(function.__qualname__)(module) is function
    except AttributeError:
        return False


def reduce_mapping_proxy(_pickler: Any, proxy: Any) -> Any:
    """A read-only view of the same mapping."""
    return rebuild.make_mapping_proxy, (rebuild.seen_through(proxy),)


def reduce_random(_pickler: Any, generator: random.Random) -> Any:
    """A generator of a class of the notebook, with its attributes: pickle would call the class, and forget them."""
    attributes = object.__getstate__(generator)
    return rebuild.make_random, (type(generator),), (attributes, generator.getstate()), None, None, rebuild.set_random


def reduce_system_random(_pickler: Any, generator: Any) -> Any:
    """It has no state."""
    return type(generator), ()


def random_reducer(kind: type) -> Callable[[Any, Any], Any] | None:
    """The reducer for a generator of random numbers of the standard library, or of a class made from it."""
    if not issubclass(kind, random.Random):
        return None
    if kind is random.SystemRandom:
        return reduce_system_random
    own = any(
        getattr(kind, name) is not getattr(random.Random, name) for name in ("__reduce__", "getstate", "setstate")
    )
    return None if own or kind is random.Random else reduce_random


def reduce_struct(_pickler: Any, layout: struct.Struct) -> Any:
    """By its format."""
    return struct.Struct, (layout.format,)


def reduce_new_type(_pickler: Any, kind: typing.NewType) -> Any:
    """One of the notebook by value; others by reference (pickle's own way)."""
    if kind.__module__ != "__main__":
        return NotImplemented
    return typing.NewType, (kind.__name__, kind.__supertype__), dict(vars(kind))


def reduce_cached_property(_pickler: Any, prop: Any) -> Any:
    """Without its lock."""
    return rebuild.make_cached_property, (prop.func, prop.attrname)


def reduce_dataclass_mark(_pickler: Any, mark: Any) -> Any:
    """By name: a copy of ``MISSING`` would be taken for a field's default."""
    return next((name for name, value in vars(dataclasses).items() if value is mark), NotImplemented)


def reduce_memoryview(pickler: Any, view: memoryview) -> Any:
    """A view of the same bytes of the same object; one with gaps is written as bytes, and that is said."""
    whole = memoryview(view.obj)
    if not (view.c_contiguous and whole.c_contiguous and view.nbytes and len(view.format) == 1):
        pickler.remarks.append("as bytes, without what it looked at")
        return bytes, (view.tobytes(),)
    start = address_of(view) - address_of(whole)
    return rebuild.view_bytes, (view.obj, start, view.nbytes, view.format, view.shape, view.readonly)


def reduce_stream(_pickler: Any, stream: Any) -> Any:
    """``sys.stdout`` and ``sys.stderr`` are the receiver's own."""
    for name in ("stdout", "stderr"):
        if stream is getattr(sys, name) or stream is getattr(sys, f"__{name}__"):
            return rebuild.standard_stream, (name,)
    return refuse_file(_pickler, stream) if isinstance(stream, io.IOBase) else NotImplemented


def container(kind: type) -> Callable[[Any, Any], Any] | None:
    """The reducer for a list or dict of the notebook whose class has its own way to put something in."""
    asked = ("__setitem__",) if issubclass(kind, dict) else ("append", "extend") if issubclass(kind, list) else ()
    owners = [next(base for base in kind.__mro__ if name in vars(base)) for name in asked]
    return reduce_container if any(owner.__module__ == "__main__" for owner in owners) else None


def reduce_container(_pickler: Any, thing: Any) -> Any:
    """Its items are put back as they are: pickle would have its class work on them a second time."""
    reduced = thing.__reduce_ex__(4)
    if not isinstance(reduced, tuple) or len(reduced) < 4:
        return reduced
    maker, arguments, state, items, pairs = (*reduced, None)[:5]
    filling = (state, None if items is None else list(items), None if pairs is None else list(pairs))
    return maker, arguments, filling, None, None, rebuild.fill_container


def refuse_file(_pickler: Any, file: Any) -> Any:
    """Open files stay where they are (cloudpickle would send a copy of what is in them)."""
    if isinstance(file, io.TextIOWrapper) and any(file is s for s in (sys.__stdout__, sys.__stderr__)):
        return reduce_stream(_pickler, file)
    name = getattr(file, "name", "")
    raise pickle.PicklingError(f"cannot pickle an open file ({name!r})")


BY_TYPE: dict[type, Any] = {
    types.CellType: reduce_cell,
    types.CodeType: reduce_code,
    types.ModuleType: reduce_module,
    weakref.ref: reduce_weakref,
    weakref.ProxyType: reduce_weak_proxy,
    weakref.CallableProxyType: reduce_weak_proxy,
    weakref.WeakValueDictionary: reduce_weak_mapping,
    weakref.WeakKeyDictionary: reduce_weak_mapping,
    memoryview: reduce_memoryview,
    types.MappingProxyType: reduce_mapping_proxy,
    contextvars.ContextVar: shared_state.reduce_variable,
    functools._lru_cache_wrapper: reduce_lru_cache,
    struct.Struct: reduce_struct,
    typing.NewType: reduce_new_type,
    functools.cached_property: reduce_cached_property,
    type(dataclasses.MISSING): reduce_dataclass_mark,
    type(dataclasses.KW_ONLY): reduce_dataclass_mark,
    type(vars(dataclasses)["_HAS_DEFAULT_FACTORY"]): reduce_dataclass_mark,
    io.TextIOWrapper: refuse_file,
    io.BufferedReader: refuse_file,
    io.BufferedWriter: refuse_file,
    io.BufferedRandom: refuse_file,
    io.FileIO: refuse_file,
    unpickler.MissingGlobal: unpickler.reduce_global,
    unpickler.MissingObject: unpickler.reduce_object,
}


def _numpy(kind: type) -> Any:
    from . import numpy_arrays

    return numpy_arrays.reducer_for(kind)


def _torch(kind: type) -> Any:
    from . import torch_tensors

    return torch_distributed.reducer_for(kind) or torch_tensors.reducer_for(kind)


def _pandas(kind: type) -> Any:
    from . import pandas_frames

    return pandas_frames.reducer_for(kind)


def _jax(kind: type) -> Any:
    from . import jax_cupy

    return jax_cupy.jax_reducer_for(kind)


def _xgboost(kind: type) -> Any:
    from . import xgboost_data

    return xgboost_data.reducer_for(kind)


def _tensorflow(kind: type) -> Any:
    from . import tensorflow_values

    return tensorflow_values.reducer_for(kind)


def _keras(kind: type) -> Any:
    from . import keras_models

    return keras_models.reducer_for(kind)


def _cupy(kind: type) -> Any:
    from . import jax_cupy

    return jax_cupy.cupy_reducer_for(kind)


def _matplotlib(kind: type) -> Any:
    return _reduce_figure if any(base.__name__ == "Figure" for base in kind.__mro__) else None


def _reduce_figure(_pickler: Any, figure: Any) -> Any:
    """A figure is a value: it does not open itself again (and show a second time) where it arrives."""
    maker, arguments, state, *rest = figure.__reduce_ex__(4)
    return maker, arguments, {name: part for name, part in state.items() if name != "_restore_to_pylab"}, *rest


def _accelerate(kind: type) -> Any:
    return shared_state.reducer_for(kind)


def _tqdm(kind: type) -> Any:
    return refuse_progress_bar if any(base.__name__ == "tqdm" for base in kind.__mro__) else None


def refuse_progress_bar(_pickler: Any, _bar: Any) -> Any:
    """tqdm's bars hold locks, streams and the cell's display."""
    raise pickle.PicklingError("a progress bar stays where it runs")


def _concurrent(kind: type) -> Any:
    if any(
        name in vars(base) for base in kind.__mro__[:-1] for name in ("__reduce__", "__reduce_ex__", "__getstate__")
    ):
        return None  # it knows how to travel
    is_future = any((base.__module__, base.__name__) == ("concurrent.futures._base", "Future") for base in kind.__mro__)
    return refuse_future if is_future else None


def refuse_future(_pickler: Any, _future: Any) -> Any:
    """A launched function's run, or something that an executor is at."""
    raise CannotSendError("it is a future and not its result", hint="send its result: .result() waits for it")


#: library → the reducer for one of its types; asked only when the library is loaded
LIBRARIES = {
    "numpy": _numpy,
    "torch": _torch,
    "jaxlib": _jax,
    "jax": _jax,
    "cupy": _cupy,
    "matplotlib": _matplotlib,
    "pandas": _pandas,
    "accelerate": _accelerate,
    "xgboost": _xgboost,
    "tensorflow": _tensorflow,
    "keras": _keras,
    "tqdm": _tqdm,
    "concurrent": _concurrent,
}

#: reducers that only refuse: what is inside such a thing is of no interest
REFUSING = torch_distributed.REFUSING | {refuse_file, refuse_progress_bar, refuse_future}
