"""Things of the standard library that pickle and cloudpickle refuse, or take along in a surprising way."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import ctypes
import decimal
import functools
import gc
import importlib
import io
import logging
import operator
import os
import pickle
import struct
import sys
import threading
import types
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ... import streams
from ...errors import CannotSendError
from ...store.mapped.memory import address_of
from .. import singletons
from ..adapter import Reader, Reducer, receiving, refusing
from ..memory import CData
from ..users_code import is_of_the_user
from . import buffers, cached_functions, context_variables, iterators, log_settings, thread_locals
from .code_objects import reduce_code


def reduce_cell(_pickler: Any, cell: types.CellType) -> Any:
    """A closure's cell: shared cells stay shared, and a closure may refer to itself."""
    try:
        contents = cell.cell_contents
    except ValueError:
        return make_cell, ()
    return make_cell, (), (contents,), None, None, set_cell  # pickle skips a state of None


def reduce_module(pickler: Any, module: types.ModuleType) -> Any:
    """By name when it is imported, else by value (cloudpickle)."""
    if module.__name__ not in sys.modules:
        return NotImplemented
    pickler.modules.add(module.__name__)
    return import_module, (module.__name__,)


def reduce_weakref(pickler: Any, reference: weakref.ref[Any]) -> Any:
    """A weak reference to something (else) in the graph, with what is called when that ends."""
    target = reference()
    return (dead_weakref, ()) if target is None else (make_weakref, (target, *_callback_to_send(pickler, reference)))


def reduce_weak_method(pickler: Any, reference: weakref.WeakMethod[Any]) -> Any:
    """A weak reference to a method of something (else) in the graph."""
    target = reference()
    return (
        (dead_weakref, ()) if target is None else (make_weak_method, (target, *_callback_to_send(pickler, reference)))
    )


def callback_of(reference: Any) -> Any:
    """The function that is called when what a reference or proxy refers to ends; None: there is none."""
    found = next(iter(gc.get_referents(reference)), None) if type(reference) is not weakref.WeakMethod else None
    if type(reference) is weakref.WeakMethod and reference.__callback__ is not None:
        within = zip(reference.__callback__.__code__.co_freevars, reference.__callback__.__closure__ or (), strict=True)
        found = dict(within)["callback"].cell_contents
    return found.callback if type(found) is Watcher else found


def _callback_to_send(pickler: Any, reference: Any) -> tuple[Any, ...]:
    callback = callback_of(reference)
    if callback is None:
        return ()
    if pickler.can_write(callback):
        return (callback,)
    pickler.remarks.append("without the callback of a weak reference, which cannot be sent")
    return ()


_WITHOUT_FINALIZER = "without its `weakref.finalize`, which is over with the cell's process"


def reduce_finalizer(pickler: Any, finalizer: weakref.finalize[..., Any]) -> Any:
    """One of the notebook's is alive in its cells; one that a cell has made ends with the cell's process."""
    parts = finalizer.peek()
    if parts is None or not pickler.can_write(parts):
        return dead_finalizer, ()
    pickler.keep.append(parts)
    if not (pickler.realm.at_home or pickler.compact or _arrived.get(id(finalizer)) is finalizer):
        pickler.remarks.append(_WITHOUT_FINALIZER)
    return make_finalizer, parts


def without_finalizers(is_written: Callable[[Any], bool]) -> list[str]:
    """Sentences on objects that travel without a finalizer that a cell has made and that nothing leads to."""
    found: set[str] = set()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        target = (finalizer.peek() or (None,))[0]
        if target is not None and id(finalizer) not in _arrived and is_written(target) and not is_written(finalizer):
            found.add(type(target).__name__)
    return [f"an object of `{kind}` came back {_WITHOUT_FINALIZER}" for kind in sorted(found)]


def reduce_weak_proxy(pickler: Any, proxy: Any) -> Any:
    """A weak proxy of something (else) in the graph: pickle would take it for that thing."""
    target = proxied(proxy)
    return make_weak_proxy, (target, *(() if target is None else _callback_to_send(pickler, proxy)))


FILES_IN_MEMORY = (io.StringIO, io.BytesIO)
WEAK_CONTAINERS = (weakref.WeakSet, weakref.WeakValueDictionary, weakref.WeakKeyDictionary)


def reduce_weak_container(_pickler: Any, container: Any) -> Any:
    """The entries that are alive, put in later: they may hold the container."""
    entries = list(container) if type(container) is weakref.WeakSet else list(container.items())
    return type(container), (), entries, None, None, fill_weak_container


def weak_items(container: Any) -> list[Any]:
    """The objects that it refers to, be it weakly or not."""
    if type(container) is weakref.WeakSet:
        return list(container)
    return [part for pair in list(container.items()) for part in pair]


def set_weak_items(container: Any, items: dict[int, Any]) -> None:
    """Put others in the place of those with these numbers."""
    parts = [items.get(place, part) for place, part in enumerate(weak_items(container))]
    container.clear()
    container.update(parts if type(container) is weakref.WeakSet else zip(parts[::2], parts[1::2], strict=True))


def update_file_in_memory(old: Any, new: Any) -> bool | None:
    """The content and the position of a ``StringIO`` or ``BytesIO``."""
    if type(old) not in FILES_IN_MEMORY:
        return None
    try:
        old.__setstate__(new.__getstate__())
    except (BufferError, ValueError):  # others look at its memory, or it was closed
        return False
    return True


def update_weak_container(old: Any, new: Any) -> bool | None:
    """Fill a container of the notebook anew: what lets its entries go knows the one that it was made for."""
    if type(old) not in WEAK_CONTAINERS:
        return None
    entries = list(new) if type(new) is weakref.WeakSet else list(new.items())
    old.clear()
    old.update(entries)
    return True


def reduce_lru_cache(pickler: Any, function: Any) -> Any:
    """With what it remembers; a library's own by reference (pickle's own way)."""
    is_importable = _is_importable(function)
    if is_importable and not is_of_the_user(function.__wrapped__):
        return NotImplemented
    state = cached_functions.state_of(pickler, function)
    if is_importable:
        pickler.modules.add(function.__module__)
        arguments = function.__module__, function.__qualname__
        return singletons.find_attribute, arguments, state, None, None, streams.fill_cached_function
    settings = function.cache_parameters()
    parts = function.__wrapped__, settings["maxsize"], settings["typed"]
    return make_lru_cache, parts, state, None, None, streams.fill_cached_function


def _is_importable(function: Any) -> bool:
    module = sys.modules.get(function.__module__)
    if module is None or module.__name__ == "__main__":
        return False
    try:
        return operator.attrgetter(function.__qualname__)(module) is function
    except AttributeError:
        return False


#: module and name → the function of C or class that stood there before somebody put another in its place
_replaced: dict[tuple[str, str], Any] = {}


def reduce_builtin_function(pickler: Any, function: Any) -> Any:
    """One in whose place somebody put another (``old = builtins.print``): as what stood there; others pickle's way."""
    module = function.__self__  # of a bound method, the object: compared with nothing, as it may be an array
    if type(module) is not types.ModuleType:
        return reduce_bound_method(pickler, function)
    if getattr(module, function.__name__, function) is function:
        return NotImplemented
    place = module.__name__, function.__name__
    pickler.modules.add(place[0])
    _replaced[place] = function
    return replaced_function, place


def reduce_replaced_class(pickler: Any, cls: type) -> Any:
    """The same of a class (``datetime.date = Frozen``), which only its library can make; None: it has its place."""
    module = sys.modules.get(cls.__module__)
    found = None if module is None else vars(module).get(cls.__qualname__, cls)
    if module is None or found is cls or cls.__module__ == "__main__" or not _is_of_notebook(found):
        return None
    _replaced[cls.__module__, cls.__qualname__] = cls
    pickler.modules.add(cls.__module__)
    return replaced_function, (cls.__module__, cls.__qualname__)


def _is_of_notebook(thing: Any) -> bool:
    return getattr(thing, "__module__", "") == "__main__"


def reduce_slot(_pickler: Any, slot: types.GetSetDescriptorType) -> Any:
    """The slot of a class for its objects' attributes, under whose name the class itself has another thing."""
    owner, name = slot.__objclass__, slot.__name__
    return NotImplemented if getattr(owner, name, None) is slot else (own_attribute, (owner, name))


def reduce_bound_method(pickler: Any, method: Any) -> Any:
    """One that a module has as an attribute (``random.choice``, ``np.random.rand``): by that name, as one object."""
    place = getattr(method, "__module__", None) or type(method.__self__).__module__
    module, name = sys.modules.get(place), getattr(method, "__name__", "")  # one of a partial has no name
    if place == "__main__" or module is None or vars(module).get(name) is not method:
        return NotImplemented
    return singletons.by_name(pickler, place, name)


def reduce_mapping_proxy(_pickler: Any, proxy: Any) -> Any:
    """A read-only view of the same mapping."""
    return make_mapping_proxy, (seen_through(proxy),)


def reduce_dict_view(_pickler: Any, view: Any) -> Any:
    """Keys, values or items of the same dict."""
    return VIEWS[type(view)], (seen_through(view),)


def reduce_struct(_pickler: Any, layout: struct.Struct) -> Any:
    """By its format."""
    return struct.Struct, (layout.format,)


def reduce_new_type(_pickler: Any, kind: typing.NewType) -> Any:
    """One of the notebook by value; others by reference (pickle's own way)."""
    if kind.__module__ != "__main__":
        return NotImplemented
    return typing.NewType, (kind.__name__, kind.__supertype__), dict(vars(kind))


def reduce_type_parameter(_pickler: Any, parameter: Any) -> Any:
    """One of the notebook by value, as cloudpickle does with ``TypeVar``; others by reference (pickle's own way)."""
    if parameter.__module__ != "__main__":
        return NotImplemented
    return make_type_parameter, (type(parameter), parameter.__name__, getattr(parameter, "__bound__", None))


def reduce_array_type(_pickler: Any, kind: Any) -> Any:
    """``Point * 3`` of ctypes, which is one class in each process."""
    length = getattr(kind, "_length_", None)
    is_product = length is not None and kind._type_ * length is kind
    return (operator.mul, (kind._type_, length)) if is_product else NotImplemented


def reduce_decimal_context(pickler: Any, context: decimal.Context) -> Any:
    """Those that the module has are the receiver's own, which are set as these are."""
    if context is decimal.getcontext():
        return decimal.getcontext, ()
    name = next((name for name, value in vars(decimal).items() if value is context), None)
    return NotImplemented if name is None else singletons.by_name(pickler, "decimal", name)


def reduce_cached_property(_pickler: Any, prop: Any) -> Any:
    """Without its lock."""
    return make_cached_property, (prop.func, prop.attrname)


def reduce_memoryview(pickler: Any, view: memoryview) -> Any:
    """A view of the same bytes of the same object; one with gaps is written as bytes, and that is said."""
    whole = memoryview(view.obj)
    if not (view.c_contiguous and whole.c_contiguous and view.nbytes and len(view.format) == 1):
        pickler.remarks.append("as bytes, without what it looked at")
        return bytes, (view.tobytes(),)
    start = address_of(view) - address_of(whole)
    return view_bytes, (view.obj, start, view.nbytes, view.format, view.shape, view.readonly)


def reduce_stream(_pickler: Any, stream: Any) -> Any:
    """``sys.stdout`` and ``sys.stderr`` are the receiver's own."""
    for name in ("stdout", "stderr"):
        if stream is getattr(sys, name) or stream is getattr(sys, f"__{name}__"):
            return standard_stream, (name,)
    is_in_memory = isinstance(stream, io.StringIO)
    return refuse_file(_pickler, stream) if isinstance(stream, io.IOBase) and not is_in_memory else NotImplemented


def _container(kind: type) -> Reducer | None:
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
    return maker, arguments, filling, None, None, fill_container


@refusing
def refuse_file(_pickler: Any, file: Any) -> Any:
    """Open files stay where they are (cloudpickle would send a copy of what is in them)."""
    if isinstance(file, io.TextIOWrapper) and any(file is s for s in (sys.__stdout__, sys.__stderr__)):
        return reduce_stream(_pickler, file)
    name = getattr(file, "name", "")
    raise pickle.PicklingError(f"cannot pickle an open file ({name!r})")


def reduce_environment(pickler: Any, variables: Any) -> Any:
    """``os.environ`` is the process's own everywhere: its variables travel by themselves, secrets held back."""
    name = next((name for name in ("environ", "environb") if getattr(os, name, None) is variables), "")
    return singletons.by_name(pickler, "os", name) if name else NotImplemented


_BY_TYPE: dict[type, Reducer] = {
    type(os.environ): reduce_environment,
    types.CellType: reduce_cell,
    types.CodeType: reduce_code,
    types.ModuleType: reduce_module,
    weakref.ref: reduce_weakref,
    weakref.WeakMethod: reduce_weak_method,
    weakref.finalize: reduce_finalizer,
    weakref.ProxyType: reduce_weak_proxy,
    weakref.CallableProxyType: reduce_weak_proxy,
    **dict.fromkeys(WEAK_CONTAINERS, reduce_weak_container),
    iterators.TEE: iterators.reduce_tee,
    memoryview: reduce_memoryview,
    types.MappingProxyType: reduce_mapping_proxy,
    type({}.keys()): reduce_dict_view,
    type({}.values()): reduce_dict_view,
    type({}.items()): reduce_dict_view,
    contextvars.ContextVar: context_variables.reduce_variable,
    functools._lru_cache_wrapper: reduce_lru_cache,
    types.BuiltinFunctionType: reduce_builtin_function,
    types.GetSetDescriptorType: reduce_slot,
    types.MethodType: reduce_bound_method,
    struct.Struct: reduce_struct,
    typing.NewType: reduce_new_type,
    typing.ParamSpec: reduce_type_parameter,
    typing.TypeVarTuple: reduce_type_parameter,
    decimal.Context: reduce_decimal_context,
    type(ctypes.Array): reduce_array_type,
    functools.cached_property: reduce_cached_property,
    io.TextIOWrapper: refuse_file,
    io.BufferedReader: refuse_file,
    io.BufferedWriter: refuse_file,
    io.BufferedRandom: refuse_file,
    io.FileIO: refuse_file,
}


def _says_itself(kind: type) -> bool:
    """Tell if a class knows how its objects travel."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return any(name in vars(base) for base in kind.__mro__[:-1] for name in names)


def _future(kind: type) -> Reducer | None:
    if _says_itself(kind):
        return None
    is_future = any((base.__module__, base.__name__) == ("concurrent.futures._base", "Future") for base in kind.__mro__)
    return refuse_future if is_future else None


@refusing
def refuse_future(_pickler: Any, _future: Any) -> Any:
    """A launched function's run, or something that an executor is at."""
    raise CannotSendError("it is a future and not its result", hint="send its result: .result() waits for it")


def reducer_for(kind: type) -> Reducer | None:
    """The reducer for a class."""
    if issubclass(kind, CData):
        return buffers.reduce_ctypes
    if issubclass(kind, threading.local):
        return thread_locals.reduce_thread_local
    is_handler = kind is logging.StreamHandler or (issubclass(kind, logging.Handler) and kind.__module__ == "__main__")
    if (is_handler or log_settings.holds_records(kind)) and not _says_itself(kind):
        return log_settings.reduce_handler
    return _BY_TYPE.get(kind) or _future(kind) or _container(kind) or singletons.reducer_for(kind)


# -------------------------------------------------------------------------------------- put together
@streams.named
def make_type_parameter(kind: Any, name: str, bound: Any) -> Any:
    """A ``ParamSpec`` or ``TypeVarTuple`` of the notebook."""
    made = kind(name) if bound is None else kind(name, bound=bound)
    with contextlib.suppress(AttributeError):
        made.__module__ = "__main__"
    return made


@streams.named
def make_cell() -> types.CellType:
    """An empty closure cell."""
    return types.CellType()


@streams.named
def view_bytes(owner: Any, start: int, length: int, kind: str, shape: tuple[int, ...], readonly: bool) -> memoryview:
    """A view of ``length`` bytes of what ``owner`` shows of its memory, from byte ``start`` on."""
    view = memoryview(owner).cast("B")[start : start + length]
    if kind != "B" or len(shape) != 1:
        view = view.cast(kind, shape) if len(shape) != 1 else view.cast(kind)  # type: ignore[call-overload]
    return view.toreadonly() if readonly else view


@streams.named
def fill_container(container: Any, state: tuple[Any, list[Any] | None, list[tuple[Any, Any]] | None]) -> None:
    """Fill a list or dict whose class does something of its own with what is put into it; it has done so before."""
    own, items, pairs = state
    if items is not None:
        list.extend(container, items)
    kind: Any = collections.OrderedDict if isinstance(container, collections.OrderedDict) else dict
    for key, value in pairs or ():
        kind.__setitem__(container, key, value)
    if hasattr(container, "__setstate__"):
        if own is not None:
            container.__setstate__(own)
        return
    attributes, slots = own if isinstance(own, tuple) else (own, None)
    if attributes:
        container.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(container, name, value)


@streams.named
def set_cell(cell: types.CellType, state: tuple[Any]) -> None:
    """Fill a cell (after it is known to the stream, so that closures can refer to themselves)."""
    (cell.cell_contents,) = state


class Watcher:
    """Callback of a weak reference that has arrived.

    In a rank it calls nothing: the end of a notebook's object is the notebook's. There it is called unless another
    object stands where its target was.
    """

    __slots__ = ("callback", "is_over")

    def __init__(self, callback: Callable[[Any], Any], *, is_over: bool) -> None:
        self.callback = callback
        self.is_over = is_over

    def __call__(self, reference: Any) -> None:
        """Call it, for Python."""
        if self.is_over:
            calls_left_out.append(self.callback)
        else:
            self.callback(reference)


#: callbacks that were not called in this process
calls_left_out: list[Any] = []


def _watchers(reader: Reader, callback: tuple[Any, ...]) -> list[Watcher]:
    return [Watcher(each, is_over=not reader.realm.at_home) for each in callback]


REFERENCES = (weakref.ref, *weakref.ProxyTypes)


def stop_watching(thing: Any) -> None:
    """Have no callback that has arrived called when this ends, be it the target or the reference."""
    references = [thing] if type(thing) in REFERENCES else weakref.getweakrefs(thing)
    for watcher in gc.get_referents(*references) if references else ():
        if type(watcher) is Watcher:
            watcher.is_over = True


def is_watched(thing: Any) -> bool:
    """Tell if something of the user's is called when this ends."""
    return any(map(_is_of_the_user, gc.get_referents(*weakref.getweakrefs(thing))))


def _is_of_the_user(callback: Any) -> bool:
    if type(callback) is weakref.finalize:
        callback = (callback.peek() or (None, None))[1]
    elif type(callback) is Watcher:
        callback = callback.callback
    return callback is not None and (is_of_the_user(callback) or not hasattr(callback, "__code__"))


@streams.named
@receiving
def make_weakref(reader: Reader, target: Any, *callback: Any) -> weakref.ref[Any]:
    """A weak reference. In a rank its target stays alive: who holds it may have stayed in the notebook."""
    kept_alive.append(target)
    return weakref.ref(target, *_watchers(reader, callback))


@streams.named
@receiving
def make_weak_method(reader: Reader, target: Any, *callback: Any) -> weakref.WeakMethod[Any]:
    """A weak reference to a method, in the same way."""
    kept_alive.append(target.__self__)
    return weakref.WeakMethod(target, *_watchers(reader, callback))


def update_weakref(old: Any, new: Any) -> bool | None:
    """One with a callback is the notebook's as long as its target is there."""
    if type(old) is not weakref.ref:
        return None
    return old.__callback__ is not None


@streams.named
def fill_weak_container(container: Any, entries: list[Any]) -> None:
    """Fill it. In a rank its entries stay alive: who holds them may have stayed in the notebook."""
    place = int(type(container) is weakref.WeakValueDictionary)
    kept_alive.extend(entries if type(container) is weakref.WeakSet else [entry[place] for entry in entries])
    container.update(entries)


@streams.named
def dead_finalizer() -> weakref.finalize[..., Any]:
    """A finalizer that has nothing to do any more."""
    finalizer = weakref.finalize(_Gone(), int)
    finalizer.detach()
    return finalizer


def update_finalizer(old: Any, new: Any) -> bool | None:
    """Detach a finalizer of the notebook that the cell has called or detached."""
    if not isinstance(old, weakref.finalize):
        return None
    if new.detach() is None:
        old.detach()
    return True


@streams.named
@receiving
def make_finalizer(
    reader: Reader, target: Any, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> weakref.finalize[..., Any]:
    """A finalizer that calls nothing by itself: a cell may call or detach it, its target's end is the notebook's."""
    if reader.realm.at_home:  # stands for the notebook's own, or for one that a cell has made
        finalizer = weakref.finalize(make_finalizer, _say_over)
    else:
        kept_alive.append(target)
        finalizer = weakref.finalize(target, function, *arguments, **named)
        _arrived[id(finalizer)] = finalizer
    finalizer.atexit = False
    return finalizer


#: the notebook's finalizers in a rank, by id; they take no weak reference
_arrived: dict[int, weakref.finalize[..., Any]] = {}


def _say_over() -> None:
    warnings.warn("this finalizer is over with the process of the cell that made it", RuntimeWarning, stacklevel=3)


#: targets of weak references that have arrived; in the notebook only until all is read
kept_alive: list[Any] = []


class _Gone:
    __slots__ = ("__weakref__",)


@streams.named
def dead_weakref() -> weakref.ref[Any]:
    """A weak reference whose target is gone."""
    return weakref.ref(_Gone())


#: views of mappings, and what makes them
VIEWS: dict[type, Any] = {
    types.MappingProxyType: types.MappingProxyType,
    type({}.keys()): dict.keys,
    type({}.values()): dict.values,
    type({}.items()): dict.items,
}


def seen_through(proxy: Any) -> Any:
    """The mapping at which a view looks."""
    return gc.get_referents(proxy)[0]


def proxied(proxy: Any) -> Any:
    """The object for which a ``weakref.proxy`` stands; None when it is gone."""
    try:
        return proxy.__reduce_ex__.__self__
    except ReferenceError:
        return None


@streams.named
@receiving
def make_weak_proxy(reader: Reader, target: Any, *callback: Any) -> Any:
    """A weak proxy, in the same way; without a target a proxy of what is gone."""
    kept_alive.append(target)
    return weakref.proxy(_Gone() if target is None else target, *_watchers(reader, callback))


@streams.named
def make_lru_cache(function: Any, maxsize: int | None, typed: bool) -> Any:
    """An ``lru_cache`` around ``function``, empty."""
    return functools.lru_cache(maxsize=maxsize, typed=typed)(function)


@streams.named
def own_attribute(cls: type, name: str) -> Any:
    """The attribute that a class itself has under this name."""
    return vars(cls)[name]


@streams.named
def replaced_function(module: str, name: str) -> Any:
    """The value that stood there at first: in a rank, what was set in libraries is set after all is read."""
    found = _replaced.get((module, name)) or getattr(importlib.import_module(module), name)
    return _replaced.setdefault((module, name), found)


@streams.named
def make_mapping_proxy(mapping: Any) -> types.MappingProxyType[Any, Any]:
    """A read-only view of a mapping."""
    return types.MappingProxyType(mapping)


@streams.named
def make_cached_property(function: Any, name: str | None) -> functools.cached_property[Any]:
    """A ``cached_property`` (its lock is new)."""
    made = functools.cached_property(function)
    made.attrname = name
    return made


@streams.named
def standard_stream(name: str) -> Any:
    """``sys.stdout`` or ``sys.stderr`` of the receiver."""
    return getattr(sys, name)


@streams.named
def import_module(name: str) -> types.ModuleType:
    """The module of this name."""
    return importlib.import_module(name)
