"""Functions that streams call on load; Realm, Rebuilder, class skeletons.

``__init_subclass__`` and metaclasses that the notebook defines have run when the class was defined; what they did
(a registry, say) travels as data. They could not run here anyway: the globals they read may not be loaded yet. A class
that a library completes is made by its own statement instead (:mod:`.class_statements`).

What depends on whose namespace it is and on what exists there already is a method of :class:`Rebuilder`, which streams
name as a function.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cloudpickle import cloudpickle

from .. import streams
from ..adapters.adapter import RECEIVING, GroupState, receiving
from ..adapters.registry import adapter_of
from ..adapters.singletons import nan_of
from . import abstract_classes, class_statements
from .identity import (
    OF_GLOBALS,
    Origins,
    class_attributes,
    class_with_id,
    drop_attribute,
    function_attributes,
    function_with_id,
    parts_of_definition,
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
    #: file name and text of the cells that were executed here, the newest first
    cells: Callable[[], Iterable[tuple[str, str]]] = tuple
    #: id of an object that arrived without attributes of its sender's → it, and their names
    left_out: dict[int, tuple[weakref.ref[Any], list[str]]] = field(default_factory=dict)


def known_class(*_arguments: Any) -> NoReturn:
    """Only in fingerprints, which nobody loads."""
    raise TypeError("a fingerprint is no graph")


class Rebuilder:
    """Rebuilds functions and classes in one realm, for one graph."""

    def __init__(self, realm: NamespaceInfo) -> None:
        self.realm = realm
        #: what the stream refers to by number
        self.targets: Any = ()
        self._fresh: set[int] = set()
        #: those of them that their statement has made
        self._whole: set[int] = set()
        self._made: list[tuple[Any, Callable[[Any], dict[str, Any]]]] = []
        #: code of functions that are bound to the receiver's namespace
        self.codes: list[types.CodeType] = []
        #: closures in classes that are known here, each with what arrived for it
        self.closures: list[tuple[types.FunctionType, types.FunctionType]] = []
        #: globals of functions that are known here, in which something was set
        self.spaces: list[dict[str, Any]] = []
        #: objects that a call has made, each with names of attributes that did not travel
        self.left: list[tuple[Any, list[str]]] = []
        #: cached functions, each with its state
        self.caches: list[tuple[Any, Any]] = []

    def bound(self, found: Any) -> Any:
        """A global of the stream; a function that asks who reads it gets this."""
        if not isinstance(found, types.FunctionType):
            return found
        if found in RECEIVING:
            return types.MethodType(RECEIVING[found], self)
        adapter = adapter_of(str(found.__module__).partition(".")[0])
        return found if adapter is None else adapter.reading(found)

    def referred(self, number: int | str) -> Any:
        """The notebook's own object, or a view on its memory; a NaN by its key."""
        return nan_of(number) if isinstance(number, str) else self.targets[number]

    def fill_cached_function(self, cached: Any, state: Any) -> None:
        """Later: the arguments that it remembers may have no hash before all is read."""
        self.caches.append((cached, state))

    def _is_fresh(self, thing: Any) -> bool:
        return id(thing) in self._fresh

    def _note_fresh(self, thing: Any, attributes: Callable[[Any], dict[str, Any]]) -> None:
        self._fresh.add(id(thing))
        self._made.append((thing, attributes))

    def remember_arrivals(self, digest: Callable[[Any], bytes | None]) -> None:
        """The graph is loaded: remember how what was made here looked (only a rank asks later)."""
        if not self.realm.at_home:
            self.realm.origins.remember_arrivals(((thing, look(thing)) for thing, look in self._made), digest)

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
        if known is not None and (known.__globals__ is namespace or isinstance(where, dict)):
            return known
        namespace.setdefault("__builtins__", __builtins__)
        function = types.FunctionType(code, namespace, name, None, cells)
        self._note_fresh(function, functools.partial(function_attributes, namespace=self.realm.namespace))
        if ident:
            register_function(ident, function)
        return function

    def set_function(self, function: types.FunctionType, state: tuple[dict[str, Any], ...]) -> None:
        """Fresh: all of ``state``. Known here: only what the cell changed."""
        slots, attributes, foreign, changed, removed = state
        fresh = self._is_fresh(function)
        self._set_globals(function, foreign or {}, [*changed, *removed], fresh=fresh)
        for name, value in slots.items():
            if fresh or name in changed:
                setattr(function, name, value)
        for name, value in attributes.items():
            if fresh or f".{name}" in changed:
                vars(function)[name] = value  # `functools.wraps` of a class gives it a `__dict__` and the like
        if not fresh:
            for name in removed:
                vars(function).pop(name[1:], None)

    def _set_globals(
        self, function: types.FunctionType, values: dict[str, Any], changed: list[str], *, fresh: bool
    ) -> None:
        """Globals that are neither the notebook's nor a module's."""
        space = function.__globals__
        if fresh:
            for name, value in values.items():
                space.setdefault(name, value)
            return
        names = [name.removeprefix(OF_GLOBALS) for name in changed if name.startswith(OF_GLOBALS)]
        if names:
            self.spaces.append(space)
        for name in names:
            if name in values:
                space[name] = values[name]
            else:
                space.pop(name, None)

    # --------------------------------------------------------------------------------- classes
    def make_class(self, kind: str, *arguments: Any) -> type:
        """The class that has this id here, or a new one (empty; an enum with its members; by its statement, whole)."""
        known = class_with_id(self.realm.aliases.get(arguments[-2], arguments[-2]))
        if known is not None:
            return known
        if kind == "enum":
            made: type = cloudpickle._make_skeleton_enum(*arguments)
        else:
            meta, name, bases, kwargs, ident, statement = arguments
            if statement is None:
                made = make_skeleton(meta, name, bases, kwargs)
            else:
                made = class_statements.run_statement(statement, name, self.realm.namespace)
                class_statements.remember_statement(made, statement)
                self._whole.add(id(made))
            register_class(ident, made)
        self._note_fresh(made, class_attributes)
        return made

    def set_class(self, cls: type, state: tuple[dict[str, Any], list[str], list[str]]) -> None:
        """Fresh: all attributes. Known here: only what the cell changed, so nothing stale overwrites it."""
        attributes, changed, removed = state
        known = attributes.pop(abstract_classes.KNOWN, {})
        is_new = id(cls) in self._whole or self._is_fresh(cls)
        self._set_attributes(cls, attributes, changed, removed)
        if is_new or abstract_classes.KNOWN in changed:  # now it has the methods that libraries look for
            abstract_classes.tell_libraries(cls, known)

    def _set_attributes(self, cls: type, attributes: dict[str, Any], changed: list[str], removed: list[str]) -> None:
        owners = attributes.pop(abstract_classes.WITH, [])
        if id(cls) in self._whole:
            class_statements.set_own_attributes(cls, attributes)
            return
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
            pairs = list(_function_pairs(vars(cls).get(name), attributes[name]))
            self.closures += pairs
            if not pairs:
                set_attribute(cls, name, attributes[name])
        for name in removed:
            drop_attribute(cls, name)


def _function_pairs(old: Any, new: Any) -> Iterator[tuple[types.FunctionType, types.FunctionType]]:
    """Functions of a method that stay, with those that arrived for them; nothing: it is another method now."""
    if isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType) and old.__code__ == new.__code__:
        yield old, new
    elif type(old) is type(new) and isinstance(old, staticmethod | classmethod | property):
        parts = list(zip(parts_of_definition(old) or (), parts_of_definition(new) or (), strict=True))
        found = [list(_function_pairs(one, two)) for one, two in parts]
        if all(pair or one is two is None for pair, (one, two) in zip(found, parts, strict=True)):
            yield from itertools.chain.from_iterable(found)


make_function = streams.named(receiving(Rebuilder.make_function))
set_function = streams.named(receiving(Rebuilder.set_function))
make_class = streams.named(receiving(Rebuilder.make_class))
set_class = streams.named(receiving(Rebuilder.set_class))
referred = streams.named(receiving(Rebuilder.referred))
fill_cached_function = streams.named(receiving(Rebuilder.fill_cached_function))
