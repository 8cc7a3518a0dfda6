"""Functions that streams call on load; Realm, Rebuilder, class skeletons.

``__init_subclass__`` and metaclasses that the notebook defines have run when the class was defined; what they did
(a registry, say) travels as data. They could not run here anyway: the globals they read may not be loaded yet.

The functions marked *receiver's* are only names here: :class:`Rebuilder` answers for them, because the result
depends on whose namespace it is, on what exists there already, and on whether there is a GPU.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import operator
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cloudpickle import cloudpickle

from .. import streams
from ..errors import LoadError
from . import abstract_classes, device_marks
from .identity import (
    Origins,
    class_attributes,
    class_with_id,
    drop_attribute,
    function_attributes,
    function_with_id,
    register_class,
    register_function,
    set_attribute,
    take_member_attributes,
    travels_by_value,
)


def make_skeleton(meta: type, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]) -> type:
    """A class of this metaclass, name and bases; ``kwargs``: attributes that must be there from the start."""
    resolved = types.resolve_bases(bases)
    maker = next(part for part in meta.__mro__ if not travels_by_value(part))
    space = dict(maker.__prepare__(name, resolved))
    if resolved is not bases:
        space["__orig_bases__"] = bases
    space.update(kwargs)
    with contextlib.ExitStack() as stack:
        for base in {part for parent in resolved for part in parent.__mro__}:
            if travels_by_value(base) and "__init_subclass__" in vars(base):
                stack.enter_context(_without_hook(base))
        made: type = maker.__new__(meta, name, resolved, space)
        maker.__init__(made, name, resolved, space)  # type: ignore[misc]
    return made


@contextlib.contextmanager
def _without_hook(base: type) -> Iterator[None]:
    hook = vars(base)["__init_subclass__"]
    type.__setattr__(base, "__init_subclass__", classmethod(lambda _cls, **_: None))
    try:
        yield
    finally:
        type.__setattr__(base, "__init_subclass__", hook)


@dataclass
class GroupState:
    """Facts on the process group of a run that goes on, with which a save is written, and read."""

    #: it is begun again: what is spread over the ranks travels, too; False: the code makes it itself (a checkpoint)
    is_whole: bool = True
    #: how many ranks it had where the save was made
    was: int = 0
    #: memory of tensors is torch's own (FSDP lets it go, and takes it again), and no part of what was read
    owns_memory: bool = False
    #: replicas (module in them, what they were made with) that are to be wrapped again once all is read
    replicas: list[tuple[Any, Any, dict[str, Any]]] = field(default_factory=list)
    #: name of a group where the save was made → that group here
    groups: dict[str, Any] = field(default_factory=dict)
    #: states of FSDP's modules that were read
    states: list[Any] = field(default_factory=list)
    #: id of a parameter that FSDP has put together → (it, this rank's part of it); see :mod:`.torch_sharding`
    parts: dict[int, tuple[Any, Any]] | None = None


@dataclass
class NamespaceInfo:
    """Facts on a namespace. ``at_home``: of the notebook's kernel (objects in host memory), else a rank's."""

    namespace: dict[str, Any]
    at_home: bool
    has_gpu: bool = False
    origins: Origins = field(default_factory=Origins)
    #: of a save; None: replicas travel as the modules in them, and what is spread over the ranks not at all
    group: GroupState | None = None
    #: id of a class or function in the graph that is read → its id here (results of a run of another kernel)
    aliases: dict[str, str] = field(default_factory=dict)


def _receivers(*_arguments: Any) -> NoReturn:
    raise TypeError("this stream is a graph of jupyter_gpu_release: read it with serialization.codec")


@streams.named
def make_function(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


@streams.named
def set_function(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


@streams.named
def make_class(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


@streams.named
def set_class(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


def known_class(*arguments: Any) -> NoReturn:
    """Only in fingerprints, which nobody loads."""
    _receivers(arguments)


@streams.named
def referred(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


@streams.named
def fill_cached_function(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


@streams.named
def give_replica(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


@streams.named
def make_shard(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


@streams.named
def fill_shard(*arguments: Any) -> NoReturn:
    """Receiver's."""
    _receivers(arguments)


RECEIVERS = {
    (function.__module__, function.__name__): function.__name__
    for function in (
        make_function,
        set_function,
        make_class,
        set_class,
        referred,
        give_replica,
        fill_cached_function,
        make_shard,
        fill_shard,
    )
} | device_marks.RECEIVERS


class Rebuilder:
    """Rebuilds functions and classes in one realm, for one graph."""

    def __init__(self, realm: NamespaceInfo) -> None:
        self.realm = realm
        #: what the stream refers to by number
        self.targets: Any = ()
        self._fresh: set[int] = set()
        self._made: list[tuple[Any, Callable[[Any], dict[str, Any]]]] = []
        #: code of functions that are bound to the receiver's namespace
        self.codes: list[types.CodeType] = []
        #: cached functions, each with its state
        self.caches: list[tuple[Any, Any]] = []

    def function_named(self, name: str) -> Any:
        """The meaning that ``rebuild.<name>`` in a stream has here."""
        return getattr(self, name)

    def referred(self, number: int) -> Any:
        """The notebook's own object, or a view on its memory."""
        return self.targets[number]

    def give_replica(self, module: Any, made: dict[str, Any]) -> Any:
        """A replica in a rank that goes on; elsewhere the module in it."""
        if self.realm.group is None:
            return module
        from torch.nn.parallel import DistributedDataParallel

        replica = DistributedDataParallel.__new__(DistributedDataParallel)
        self.realm.group.replicas.append((replica, module, made))
        return replica

    def fill_cached_function(self, cached: Any, state: Any) -> None:
        """Later: the arguments that it remembers may have no hash before all is read."""
        self.caches.append((cached, state))

    def make_shard(self, kind: str, *arguments: Any) -> Any:
        """A part of what is spread over the ranks of a gang, in the gang that goes on; nowhere else."""
        if self.realm.group is None:
            raise LoadError("each rank of its gang has a part of it")
        return _sharding().make(self.realm.group, kind, *arguments)

    def fill_shard(self, thing: Any, state: dict[str, Any]) -> None:
        """The rest of it, set once it is known to the stream."""
        _sharding().fill(self.realm.group, thing, state)

    def _is_fresh(self, thing: Any) -> bool:
        return id(thing) in self._fresh

    def _note_fresh(self, thing: Any, attributes: Callable[[Any], dict[str, Any]]) -> None:
        self._fresh.add(id(thing))
        self._made.append((thing, attributes))

    def remember_arrivals(self, digest: Callable[[Any], bytes | None]) -> None:
        """The graph is loaded: remember how what was made here looked (only a rank asks later)."""
        if not self.realm.at_home:
            for thing, attributes in self._made:
                self.realm.origins.remember_arrival(thing, attributes(thing), digest)

    # ------------------------------------------------------------------------------- functions
    def make_function(
        self, ident: str, code: types.CodeType, where: Any, name: str, cells: tuple[types.CellType, ...] | None
    ) -> types.FunctionType:
        """``where``: None for the notebook's globals, a module's name, or a dict of globals of its own."""
        namespace = self.realm.namespace if where is None else where
        if where is None:
            self.codes.append(code)
        if isinstance(where, str):
            namespace = vars(importlib.import_module(where))
        ident = self.realm.aliases.get(ident, ident)
        known = function_with_id(ident)
        if known is not None and known.__globals__ is namespace:
            return known
        namespace.setdefault("__builtins__", __builtins__)
        function = types.FunctionType(code, namespace, name, None, cells)
        self._note_fresh(function, function_attributes)
        if ident:
            register_function(ident, function)
        return function

    def set_function(self, function: types.FunctionType, state: tuple[dict[str, Any], ...]) -> None:
        """Fresh: all of ``state``. Known here: only what the cell changed."""
        slots, attributes, foreign, changed, removed = state
        if foreign:
            for name, value in foreign.items():
                function.__globals__.setdefault(name, value)
        fresh = self._is_fresh(function)
        for name, value in slots.items():
            if fresh or name in changed:
                setattr(function, name, value)
        for name, value in attributes.items():
            if fresh or f".{name}" in changed:
                setattr(function, name, value)
        if not fresh:
            for name in removed:
                vars(function).pop(name[1:], None)

    # --------------------------------------------------------------------------------- classes
    def make_class(self, kind: str, *arguments: Any) -> type:
        """The class that has this id here, or a new one (an empty skeleton; an enum with its members)."""
        known = class_with_id(self.realm.aliases.get(arguments[-2], arguments[-2]))
        if known is not None:
            return known
        if kind == "enum":
            made: type = cloudpickle._make_skeleton_enum(*arguments)
        else:
            meta, name, bases, kwargs, ident, _extra = arguments
            made = register_class(ident, make_skeleton(meta, name, bases, kwargs))
        self._note_fresh(made, class_attributes)
        return made

    def set_class(self, cls: type, state: tuple[dict[str, Any], list[str], list[str]]) -> None:
        """Fresh: all attributes. Known here: only what the cell changed, so nothing stale overwrites it."""
        attributes, changed, removed = state
        owners = attributes.pop(abstract_classes.WITH, [])
        if self._is_fresh(cls):
            of_members = take_member_attributes(attributes)
            cloudpickle._class_setstate(cls, (attributes, {}))
            for name, value in of_members.items():
                set_attribute(cls, name, value)
            abstract_classes.register_all(cls, [], owners)
            return
        registered = attributes.pop(abstract_classes.OWN, [])
        abstract_classes.register_all(
            cls,
            registered if abstract_classes.OWN in changed else [],
            owners if abstract_classes.WITH in changed else [],
        )
        for name in set(changed) & attributes.keys():
            set_attribute(cls, name, attributes[name])
        for name in removed:
            drop_attribute(cls, name)

    # --------------------------------------------------------------------------------- devices
    def place_storage(self, device: str, data: Any, size: int) -> Any:
        """A torch storage over ``data``; on its device if this is a rank with a GPU, else marked with it."""
        import torch

        if size == 0:
            storage = torch.UntypedStorage(0)
        else:
            writable = bytearray(data) if isinstance(data, bytes) else data
            words = torch.frombuffer(writable, dtype=torch.uint8)
            placed = words.to(device_marks.local_device(device)) if device and self._on_device else words
            if placed is words and self.realm.group is not None and self.realm.group.owns_memory:
                placed = words.clone()
            storage = placed.untyped_storage()
        if device and not self._on_device:
            setattr(storage, device_marks.ATTRIBUTE, device)
        return storage

    def place_torch_device(self, device: str) -> Any:
        """A ``torch.device``: at home, and where there is no GPU, always the CPU."""
        import torch

        if device.partition(":")[0] in ("cpu", "meta"):
            return torch.device(device)
        if self._on_device:
            return torch.device(device_marks.local_device(device))
        stand_in = torch.device("cpu")
        device_marks.mark_torch_device(stand_in, device)
        return stand_in

    def place_array(self, mark: str, dtype: Any, shape: Any, data: Any) -> Any:
        """A CuPy array on its device, or a numpy array that stands for it."""
        import numpy as np

        writable = bytearray(data) if isinstance(data, bytes) else data
        array = np.frombuffer(writable, dtype="u1").view(dtype).reshape(shape)
        if self._on_device:
            return importlib.import_module("cupy").asarray(array)
        device_marks.mark_array(array, mark)
        return array

    @property
    def _on_device(self) -> bool:
        return self.realm.has_gpu and not self.realm.at_home


def _sharding() -> Any:
    """Makes parts of what is spread over ranks; very few graphs have any."""
    return importlib.import_module(f"{__package__}.reducers.gangs.torch_sharding")


# --------------------------------------------------------------------------- the same on both sides
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


@streams.named
def make_weakref(target: Any) -> weakref.ref[Any]:
    """A weak reference. In a rank its target stays alive: who holds it may have stayed in the notebook."""
    kept_alive.append(target)
    return weakref.ref(target)


#: targets of weak references that have arrived; in the notebook only until all is read
kept_alive: list[Any] = []


class _Gone:
    __slots__ = ("__weakref__",)


@streams.named
def dead_weakref() -> weakref.ref[Any]:
    """A weak reference whose target is gone."""
    return weakref.ref(_Gone())


def seen_through(proxy: types.MappingProxyType[Any, Any]) -> Any:
    """The mapping at which a read-only view looks."""
    return gc.get_referents(proxy)[0]


def proxied(proxy: Any) -> Any:
    """The object for which a ``weakref.proxy`` stands; None when it is gone."""
    try:
        return proxy.__reduce_ex__.__self__
    except ReferenceError:
        return None


@streams.named
def make_weak_proxy(target: Any) -> Any:
    """A weak proxy, in the same way; without a target a proxy of what is gone."""
    kept_alive.append(target)
    return weakref.proxy(_Gone() if target is None else target)


@streams.named
def make_lru_cache(function: Any, maxsize: int | None, typed: bool) -> Any:
    """An ``lru_cache`` around ``function``, empty."""
    return functools.lru_cache(maxsize=maxsize, typed=typed)(function)


@streams.named
def make_mapping_proxy(mapping: Any) -> types.MappingProxyType[Any, Any]:
    """A read-only view of a mapping."""
    return types.MappingProxyType(mapping)


@streams.named
def find_attribute(module: str, name: str) -> Any:
    """The attribute of a module (``Class.name``: of a class in it)."""
    return operator.attrgetter(name)(importlib.import_module(module))


@streams.named
def make_random(kind: Any) -> Any:
    """A generator of random numbers, past what its class does when one is made."""
    return random.Random.__new__(kind)


@streams.named
def set_random(generator: random.Random, state: tuple[Any, Any]) -> None:
    """Attributes, slots and state."""
    own, drawn = state
    attributes, slots = own if isinstance(own, tuple) else (own, None)
    vars(generator).update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(generator, name, value)
    random.Random.setstate(generator, drawn)


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
