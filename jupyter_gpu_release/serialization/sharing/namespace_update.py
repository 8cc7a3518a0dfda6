"""Binds what came back: new values, inputs that were changed in place, deleted names, modules.

In the notebook these are the results of a run; in a rank that goes on, what the run had saved.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from ...adapters.stdlib.values import VIEWS, seen_through
from ..identity import EMPTY, contents_of
from ..lazy_modules import module_or_deferred
from .array_memory import copy_into_view
from .held_elsewhere import memory_of
from .in_place import dict_of, end_quietly, end_without_del, is_alike, outlive, update_in_place
from .replace import ReferenceReplacer

_MOST_STALE = 4
#: names of IPython's own, which lead to all of it
_NOT_WALKED = frozenset({"In", "Out", "_ih", "_oh", "_dh", "get_ipython", "exit", "quit", "open"})


class Arrived(Protocol):
    """A graph that was read, as :class:`.codec.Loaded` has it."""

    values: dict[str, Any]
    modules: dict[str, str]
    facts: dict[str, Any]
    closures: list[tuple[types.FunctionType, types.FunctionType]]
    left: list[tuple[Any, list[str]]]
    spaces: list[dict[str, Any]]


class NamespaceUpdate:
    """``originals``: name → object that was sent for it; ``memo``: id → (number, object) of all that was sent.

    ``stay``: ids of objects that stay as they are, whatever came for them.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        loaded: Arrived,
        originals: dict[str, Any],
        memo: Mapping[int, tuple[int, Any]],
        *,
        stay: Collection[int] = (),
    ) -> None:
        self._stays = stay
        self._memo = memo
        self._namespace = namespace
        self._loaded = loaded
        self._originals = originals
        #: classes of replaced objects that live as long as those in their place
        self.outlived: set[str] = set()
        #: classes of objects whose ``__del__`` has run in the cell, and runs here, too
        self.ended: set[str] = set()
        self._left = {id(thing): names for thing, names in loaded.left}
        self._as_before = frozenset(loaded.facts.get("as_before", ()))
        #: id of an object that shall be nowhere any more → (it, what stands in its place)
        self._pairs: dict[int, tuple[Any, Any]] = {}
        #: names whose object is another one now → the old one
        self.olds: dict[str, Any] = {}
        #: objects that are others now, where there was too much to look through for what holds them
        self.old_parts: list[Any] = []
        #: attributes that did not travel, so that they are what they were before the cell
        self.stale: set[str] = set()
        #: whether something of the notebook is nowhere any more
        self._has_replaced = False
        #: whether something of the notebook stands in the place of something that arrived
        self._home = False

    def bind(self) -> None:
        """Bind everything; other names and containers that held a replaced object hold the new one."""
        loaded, namespace = self._loaded, self._namespace
        self._end()
        replaced = self._replaced()
        namespace.update(loaded.values)
        for name, module in loaded.modules.items():
            namespace[name] = module_or_deferred(module, namespace)
        for name in loaded.facts.get("deleted", ()):
            if name in namespace and namespace[name] is self._originals.get(name):
                del namespace[name]
        if replaced:
            kept = {id(thing) for thing in self._originals.values()}
            new = {name for name, value in loaded.values.items() if id(value) not in kept} if not self._home else set()
            exchange = ReferenceReplacer(replaced)
            exchange.replace_inside([*loaded.values.values(), *loaded.spaces])
            exchange.replace_in_names(namespace, but=_NOT_WALKED | new)
            if not exchange.is_cut_short:
                self.old_parts.clear()
            self.olds = {name: old for name, old in self.olds.items() if namespace.get(name) is not old}

    def _end(self) -> None:
        """Objects that ended in the cell: there their ``__del__`` has run."""
        numbers, is_nowhere = self._loaded.facts.get("ended", ((), True))
        by_number = dict(self._memo.values()) if numbers else {}
        for thing in [by_number[number] for number in numbers if number in by_number]:
            if not (is_nowhere and end_without_del(thing)):
                self.ended.add(type(thing).__name__)

    def _replaced(self) -> dict[int, tuple[Any, Any]]:
        """Mostly objects that were sent and changed there, with what came back for them."""
        loaded = self._loaded
        facts, values = loaded.facts, loaded.values
        inplace = [name for name in facts.get("inplace", ()) if name in values and name in self._originals]
        replaced = self._pairs
        same = list(self._same())
        olds = [*(self._originals[name] for name in inplace), *(old for old, _ in same)]
        shared = set(memory_of(olds))
        named = [(name, self._originals[name], values[name]) for name in inplace]
        parts = [(None, old, thing) for old, thing in same if id(old) not in shared]
        left: list[tuple[str | None, Any, Any]] = []
        for old, new in loaded.closures:
            self._keep(old, new)
        for name, old, new in [*named, *parts]:
            if id(old) in self._stays or type(old) in weakref.ProxyTypes:  # it would be asked in its target's place
                self._stay(old, new)
            elif self._is_as_before(old, new):
                left.append((name, old, new))
            else:
                self._keep_or_replace(name, old, new)
        for name, old, new in left:
            if self._has_replaced:  # what they hold is another object now
                self._keep_or_replace(name, old, new)
            else:
                self._stay(old, new)
        return replaced

    def _keep_or_replace(self, name: str | None, old: Any, new: Any) -> None:
        replaced = self._pairs
        if name is not None:
            if not self._keep(old, new):
                replaced[id(old)] = (old, new)
                self.olds |= {} if self._note_replaced(old, new) else {name: old}
        elif type(old) is object:  # it cannot have changed, and modules may know it, too
            self._stay(old, new)
        elif id(new) not in replaced and id(old) not in replaced and not self._keep(old, new):
            replaced.setdefault(id(old), (old, new))
            self._note_replaced(old, new)

    def _note_replaced(self, old: Any, new: Any) -> bool:
        """Tell if the old one lives on, since its ``__del__`` would let go what the new one has."""
        self._has_replaced = True
        is_alive = outlive(old, new)
        self.outlived |= {type(old).__name__} if is_alive else set()
        self.old_parts += [old] if not is_alive else []
        return is_alive

    def _is_as_before(self, old: Any, new: Any) -> bool:
        """Tell if the run left an object alone, whatever has become of what it holds."""
        number, _ = self._memo.get(id(old), (None, None))
        has_own = isinstance(old, (types.FunctionType, *VIEWS))
        return number in self._as_before and not has_own and is_alike(old, new)

    def _same(self) -> Iterator[tuple[Any, Any]]:
        """Objects that were sent, with what came back for them."""
        numbers, things = self._loaded.facts.get("same", ((), ()))
        by_number = dict(self._memo.values()) if numbers else {}
        for number, thing in zip(numbers, things, strict=True):
            old = by_number.get(number)
            if is_alike(old, thing) and old is not thing:
                yield old, thing

    def holders(self, old: Any) -> list[int]:
        """Ids of what holds an old object here."""
        found: list[Any] = [self._originals, self._pairs.get(id(old)), self.olds]
        found += [self._memo.get(id(old)), self._pairs, self.old_parts]
        return [*map(id, found), *self._pairs]

    @property
    def kept(self) -> set[int]:
        """Ids of objects of the notebook that were brought to what came back for them."""
        return {id(old) for _, old in self._pairs.values()}

    # --------------------------------------------------------- objects of the notebook that stay themselves
    def _keep(self, old: Any, new: Any) -> bool:
        """Tell if ``old`` was brought to what ``new`` is, to stand in its place everywhere."""
        if old is new or id(new) in self._pairs:
            return True
        if type(old) in VIEWS:
            return self._keep_proxy(old, new)
        if isinstance(old, types.FunctionType):
            if not isinstance(new, types.FunctionType) or old.__code__ != new.__code__:
                return False
            self._stay(old, new)
            self._keep_function(old, new)
            return True
        if copy_into_view(old, new) or update_in_place(old, new, self.stale, self._left.get(id(new))):
            self._stay(old, new)
            return True
        had, has = (dict_of(each) if id(new) in self._left else None for each in (old, new))
        if had is not None and has is not None and type(old) is type(new):
            has.update({name: had[name] for name in self._left[id(new)] if name in had})
        return False

    def standing_for(self, value: Any) -> Any:
        """The object that is bound instead of a value that came back."""
        return self._pairs.get(id(value), (value, value))[1]

    def _stay(self, old: Any, new: Any) -> None:
        end_quietly(new)
        self._pairs[id(new)] = (new, old)
        self._home = True

    def _keep_function(self, old: types.FunctionType, new: types.FunctionType) -> None:
        """Other functions of the notebook share its variables: its cells stay, with what is in them now."""
        old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
        for name, view in vars(old).items():
            if type(view) is types.MappingProxyType:
                self._keep(view, vars(new).get(name))
        vars(old).update({name: self.standing_for(value) for name, value in vars(new).items()})
        for cell, filled in zip(old.__closure__ or (), new.__closure__ or (), strict=True):
            if id(filled) in self._pairs:
                continue
            self._stay(cell, filled)
            before, now = contents_of(cell), contents_of(filled)
            if isinstance(before, types.FunctionType) and self._keep(before, now):
                continue
            if now is not EMPTY:
                cell.cell_contents = self.standing_for(now)

    def _keep_proxy(self, old: Any, new: Any) -> bool:
        """A view (``d.keys()``, the registry of ``functools.singledispatch``) of a dict: both stay."""
        if type(new) is not type(old):
            return False
        before, now = seen_through(old), seen_through(new)
        if type(before) is not dict or "__doc__" in before or not self._keep(before, now):  # that of a class
            return False
        self._stay(old, new)
        return True


def stale_sentences(stale: Collection[str]) -> list[str]:
    """Sentences for the receipt."""
    return [f"`{name}` does not travel: it is what it was before the cell" for name in sorted(stale)[:_MOST_STALE]]


def outlived_sentences(classes: Collection[str]) -> list[str]:
    """Sentences for the receipt."""
    why = "the old one lives as long, since what runs at its end (`__del__`, a weak reference's callback) is for both"
    return [f"an object of `{name}` is another one now; {why}" for name in sorted(classes)]


def ended_sentences(classes: Collection[str]) -> list[str]:
    """Sentences for the receipt."""
    return [
        f"`{name}.__del__` ran in the cell, and runs here, too, if its object ends here" for name in sorted(classes)
    ]
