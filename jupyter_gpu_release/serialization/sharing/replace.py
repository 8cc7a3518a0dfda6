"""Puts new objects where replaced ones are: in containers, attributes, tuples, closures, defaults, views."""

from __future__ import annotations

import collections
import contextvars
import functools
import operator
import types
import weakref
from collections.abc import Iterable
from typing import Any

from ...adapters.adapter import Adapter
from ...adapters.registry import adapters_of, loaded_adapters
from ...adapters.stdlib import cached_functions, iterators
from ...adapters.stdlib.values import VIEWS, callback_of, proxied, seen_through
from .. import set_order
from ..identity import own_attributes
from .array_memory import memory_of
from .in_place import fill_mapping

#: how many objects are looked through
_MOST_VISITED = 20_000
_LONGEST = 10_000
_ATOMS = (str, bytes, int, float, bool, type(None), types.ModuleType, types.CodeType)


class ReferenceReplacer:
    """``replaced``: id → (old, new). Walks the objects that it is given; what cannot be changed (a tuple, a method) is
    made again, once, and put where the old one was.
    """

    def __init__(self, replaced: dict[int, tuple[Any, Any]]) -> None:
        self._replaced = replaced
        self._memory = memory_of(replaced.values())
        self._seen: dict[int, Any] = {}
        self._left = _MOST_VISITED
        self._waiting: collections.deque[Any] = collections.deque()
        #: whether there was more to look through
        self.is_cut_short = False

    def replace_in_names(self, namespace: dict[str, Any], *, but: Iterable[str] = ()) -> None:
        """All values of these names (less ``but``), those near the names first."""
        left_out = set(but)
        self._left = _MOST_VISITED
        for name, value in list(namespace.items()):
            if name in left_out or name.startswith("__"):
                continue
            new = self._new(value)
            if new is not value:
                namespace[name] = new
        self._walk()

    def replace_inside(self, things: Iterable[Any]) -> None:
        """Put new objects into these things and into the objects that stand for what came back."""
        self._left = max(self._left, *(adapter.most_visited() for adapter in loaded_adapters()))
        self._waiting += [new for _, new in self._replaced.values()]
        for thing in things:
            self._new(thing)
        self._walk()

    def _walk(self) -> None:
        while self._waiting and self._left > 0:
            value = self._waiting.popleft()
            if id(value) not in self._seen and type(value) not in weakref.ProxyTypes:
                self._seen[id(value)] = value
                self._left -= 1
                self._inside(value)
        self.is_cut_short |= bool(self._waiting)
        self._waiting.clear()

    # ------------------------------------------------------------------------- what to put in a place
    def _new(self, value: Any) -> Any:
        """The object to hold instead of ``value`` (``value`` itself, if nothing of it was replaced)."""
        if type(value) in weakref.ProxyTypes:  # what is asked of it, its target answers, which may be gone
            return self._proxy(value)
        known = self._replaced.get(id(value))
        if known is not None and type(known[1]) is weakref.ref:
            return self._reference(value, known[1])
        if known is not None:
            is_over_others = type(known[1]) in iterators.KINDS or isinstance(known[1], (tuple, frozenset))
            return self._new(known[1]) if is_over_others and known[1] is not value else known[1]
        if isinstance(value, _ATOMS):
            if type(value).__dictoffset__ and not isinstance(value, types.ModuleType):  # a text with attributes
                self._waiting.append(value)
            return value
        made = self._remade(value)
        if made is value:
            self._waiting.append(value)
        else:
            self._replaced[id(value)] = (value, made)
        return made

    def _reference(self, value: Any, instead: weakref.ref[Any]) -> Any:
        """A weak reference that stands for another; its target may be another one, too."""
        known = self._replaced.get(id(instead))
        made = self._remade(instead) if known is None or known[1] is value else known[1]
        if made is not instead and made is not value:
            self._replaced[id(instead)] = (instead, made)
        return made

    def _proxy(self, proxy: Any) -> Any:
        _, made = self._replaced.get(id(proxy), (proxy, proxy))
        owner = self._replaced.get(id(proxied(made)))
        if owner is not None:
            made = weakref.proxy(owner[1], callback_of(made))
            self._replaced[id(proxy)] = (proxy, made)
        return made

    def _remade(self, value: Any) -> Any:
        """Remake a value that cannot be changed in place, if something in it was replaced."""
        kind = type(value)
        if isinstance(value, (tuple, frozenset)):
            is_too_much = len(value) > _LONGEST or self._left <= 0
            self.is_cut_short |= is_too_much
            if id(value) in self._seen or is_too_much:
                return value
            self._seen[id(value)] = value
            self._left -= 1
            parts = [self._new(part) for part in value]
            if all(new is old for new, old in zip(parts, value, strict=True)):
                return value
            if kind in (tuple, frozenset):
                return kind(parts)
            return kind._make(parts) if hasattr(kind, "_make") else value
        if kind is slice:
            parts = [self._new(part) for part in (value.start, value.stop, value.step)]
            return value if all(map(operator.is_, parts, (value.start, value.stop, value.step))) else slice(*parts)
        if kind is weakref.ref:
            target = value()
            owner = None if target is None else self._replaced.get(id(target))
            return value if owner is None else weakref.ref(owner[1], callback_of(value))
        if kind is weakref.WeakMethod:
            method = value()
            owner = None if method is None else self._replaced.get(id(method.__self__))
            made = owner and types.MethodType(method.__func__, owner[1])
            return value if made is None else weakref.WeakMethod(made, callback_of(value))
        if kind in VIEWS:
            mapping = self._new(seen_through(value))
            return value if mapping is seen_through(value) else VIEWS[kind](mapping)
        if kind is types.MethodType:
            owner, function = self._new(value.__self__), self._new(value.__func__)
            same = owner is value.__self__ and function is value.__func__
            return value if same else types.MethodType(function, owner)
        if kind is types.BuiltinMethodType and value.__self__ is not None:
            owner = self._new(value.__self__)
            return value if owner is value.__self__ else getattr(owner, value.__name__)
        if kind is types.FunctionType and value.__closure__:
            return self._function(value)
        if kind in iterators.KINDS:
            return iterators.remade(value, self._new)
        return self._view(value)

    def _function(self, function: types.FunctionType) -> Any:
        """A function over other cells, if its cells were replaced (they are shared by several functions)."""
        cells = tuple(self._replaced.get(id(cell), (cell, cell))[1] for cell in function.__closure__ or ())
        if all(map(operator.is_, cells, function.__closure__ or ())):
            return function
        made = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
        )
        made.__kwdefaults__, made.__qualname__, made.__doc__ = (
            function.__kwdefaults__,
            function.__qualname__,
            function.__doc__,
        )
        made.__module__, made.__annotations__ = function.__module__, function.__annotations__
        vars(made).update(vars(function))
        self._waiting.append(made)
        return made

    def _view(self, value: Any) -> Any:
        """A view of an array or tensor whose memory was replaced looks at the new memory."""
        for adapter in adapters_of(type(value)) if self._memory else ():
            value = adapter.over_new_memory(value, self._memory)
        return value

    # ---------------------------------------------------------------------------- what can be changed
    def _inside(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, (list, dict, set, collections.deque)):
            if len(value) > _LONGEST:
                self._long(value)
                return
            self._left -= len(value)
            if isinstance(value, dict):
                self._mapping(value)
            elif isinstance(value, set):
                self._set(value)
            else:
                self._indexed(value)
        elif kind is types.FunctionType:
            self._function_parts(value)
        elif kind is types.CellType:
            self._cell(value)
        elif isinstance(value, functools.partial):
            self._partial(value)
        elif kind is contextvars.ContextVar:
            self._context_variable(value)
        elif kind is functools._lru_cache_wrapper:
            self._cached_function(value)
        elif kind in (staticmethod, classmethod):
            self._waiting.append(value.__func__)
        elif kind is property:
            self._waiting += [part for part in (value.fget, value.fset, value.fdel) if part is not None]
        elif isinstance(value, type):
            if value.__module__ == "__main__":
                for name, part in own_attributes(value).items():
                    self._attribute(value, name, part)
            return
        adapters = adapters_of(kind)
        for adapter in adapters:
            self._items(adapter, value)
        if not any(adapter.is_opaque(kind) for adapter in adapters):
            attributes = _attributes(value)
            if attributes:
                self._waiting.append(attributes)
            self._slots(value)

    def _long(self, items: Any) -> None:
        """Of a long list or dict what it holds itself."""
        self.is_cut_short = True
        if isinstance(items, dict):
            for key in [key for key, part in dict.items(items) if id(part) in self._replaced]:
                dict.__setitem__(items, key, self._new(items[key]))
        elif isinstance(items, list):
            for place in [place for place, part in enumerate(list.__iter__(items)) if id(part) in self._replaced]:
                list.__setitem__(items, place, self._new(items[place]))

    def _indexed(self, items: Any) -> None:
        put = collections.deque.__setitem__ if isinstance(items, collections.deque) else list.__setitem__
        if isinstance(items, list) and list.__len__(items) != len(items):  # its items are elsewhere (TensorFlow's)
            put = type(items).__setitem__
        for place, part in enumerate(list(items)):
            new = self._new(part)
            if new is not part:
                put(items, place, new)

    def _items(self, adapter: Adapter, value: Any) -> None:
        """Such as those of an array of subplots."""
        items = adapter.items_of(value) or ()
        self.is_cut_short |= len(items) > _LONGEST
        if len(items) <= _LONGEST:
            self._left -= len(items)
            made = {place: new for place, part in enumerate(items) if (new := self._new(part)) is not part}
            if made:
                adapter.set_items(value, made)

    def _mapping(self, mapping: Any) -> None:
        if isinstance(mapping, collections.defaultdict):
            new = self._new(mapping.default_factory)
            if new is not mapping.default_factory:
                mapping.default_factory = new
        old_keys, old_parts = list(mapping), list(mapping.values())
        keys = [key if type(key) is str else self._new(key) for key in old_keys]
        parts = [self._new(part) for part in old_parts]
        if not all(map(operator.is_, keys, old_keys)):  # an optimiser's state is keyed by parameters
            fill_mapping(mapping, dict(zip(keys, parts, strict=True)))
            return
        for key, part, old in zip(keys, parts, old_parts, strict=True):
            if part is not old:
                dict.__setitem__(mapping, key, part)

    def _set(self, items: set[Any]) -> None:
        parts = list(set.__iter__(items))
        renewed = [self._new(part) for part in parts]
        if not all(map(operator.is_, renewed, parts)):
            set_order.copy_content(items, items, renewed)

    def _function_parts(self, function: types.FunctionType) -> None:
        self._waiting += function.__closure__ or ()
        if function.__module__ != "__main__":  # a library's own defaults are none of the notebook's objects
            return
        if function.__defaults__:
            new = self._new(function.__defaults__)
            if new is not function.__defaults__:
                function.__defaults__ = new
        if function.__kwdefaults__:
            self._waiting.append(function.__kwdefaults__)

    def _cell(self, cell: types.CellType) -> None:
        try:
            part = cell.cell_contents
        except ValueError:  # empty
            return
        new = self._new(part)
        if new is not part:
            cell.cell_contents = new

    def _partial(self, partial: functools.partial[Any]) -> None:
        func, args = self._new(partial.func), self._new(partial.args)
        if func is not partial.func or args is not partial.args:
            partial.__setstate__((func, args, partial.keywords, vars(partial) or None))  # type: ignore[attr-defined]
        self._waiting.append(partial.keywords)

    def _context_variable(self, variable: contextvars.ContextVar[Any]) -> None:
        value = contextvars.copy_context().get(variable)
        new = self._new(value)
        if new is not value:
            variable.set(new)

    def _cached_function(self, cached: Any) -> None:
        size = cached.cache_info().currsize
        self.is_cut_short |= size > _LONGEST
        if 0 < size <= _LONGEST:
            self._left -= size
            cached_functions.replace_entries(cached, self._new)

    def _slots(self, value: Any) -> None:
        for cls in type(value).__mro__:
            if "__slots__" in vars(cls):
                for member in list(vars(cls).values()):
                    if isinstance(member, types.MemberDescriptorType):
                        try:
                            part = member.__get__(value, cls)
                        except AttributeError:  # empty
                            continue
                        new = self._new(part)
                        if new is not part:
                            member.__set__(value, new)

    def _attribute(self, owner: type, name: str, part: Any) -> None:
        new = self._new(part)
        if new is not part:
            type.__setattr__(owner, name, new)


def _attributes(value: Any) -> dict[str, Any] | None:
    try:
        found = value.__dict__
    except Exception:  # noqa: BLE001 - a property or __getattr__ of the user's
        return None
    return found if type(found) is dict else None
