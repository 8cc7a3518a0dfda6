"""Places of iterators: an adapter finds the place of each kind, and returns to it.

What they go over stays one object with the cell's names. What no adapter takes is made again by the loop's header: then
its place is how things were before that was evaluated.
"""

from __future__ import annotations

import copy
import gc
import inspect
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from blake3 import blake3

from ....adapters.registry import adapters_of

#: a place: the adapter's name, and what it needs to return
Place = tuple[str, Any]
#: how things were before a loop's header was evaluated: names that it reads, and random states
FirstLook = dict[str, Any]
#: a bar → names to which it is bound
NamesOf = Callable[[Any], list[str]]
#: iterables whose iterators pickle takes as they are, with what they go over
_MADE_BY_ITER: tuple[Iterable[Any], ...] = (
    range(0),
    range(1 << 70),
    [],
    (),
    "",
    "\u0394",
    b"",
    bytearray(),
    array("b"),
    deque(),
    reversed([]),
)
_SAVED = frozenset(type(iter(made)) for made in _MADE_BY_ITER)
_OF_RANGES = frozenset(type(iter(made)) for made in _MADE_BY_ITER if type(made) is range)
_SEQUENCE = type(iter(type("Sequence", (), {"__getitem__": lambda _self, _index: None})()))
#: iterators that end with an error when what they go over changes its size
_OF_DICTS: dict[type, Callable[[dict[Any, Any]], Iterable[Any]]] = {
    type(iter({})): dict.keys,
    type(iter({}.values())): dict.values,
    type(iter({}.items())): dict.items,
}
_OF_SETS = type(iter(set[Any]()))
_CONTAINERS = frozenset(map(type, (*_MADE_BY_ITER, {}, {}.keys(), {}.values(), {}.items(), set(), frozenset())))
_BARS = ("tqdm.std", "tqdm.notebook")
#: of a bar, as its class takes them
_OF_BAR = (
    "total",
    "leave",
    "ncols",
    "mininterval",
    "maxinterval",
    "ascii",
    "disable",
    "unit",
    "unit_scale",
    "dynamic_ncols",
    "smoothing",
    "bar_format",
    "unit_divisor",
    "colour",
    "delay",
)


class Places:
    """Finds the place of a loop's iterator, and returns to it. ``bind``: binds a bar that was made again to a name."""

    def __init__(
        self, names_of: NamesOf = lambda _bar: [], bind: Callable[[str, Any], None] = lambda _name, _value: None
    ) -> None:
        self.names_of = names_of
        self.bind = bind
        #: rounds of this attempt, or those of earlier ones when it returns
        self.rounds = 0
        #: the loop's header gave it when that was evaluated again
        self.evaluated: Iterator[Any] = iter(())
        #: the loop's header is evaluated again, from there; None: the place is the iterator's own
        self.first: FirstLook | None = None
        #: digests of large arrays that the header reads
        self._large: list[bytes] = []
        #: bars that have not begun, and what they went over
        self.exchanged: list[tuple[Any, Any]] = []

    def place(self, iterator: Any) -> Place:
        """Describe where it is, for a pickle."""
        adapter = _adapter_of(iterator) if self.first is None else _HEADER
        assert adapter is not None
        return (adapter.name, adapter.place(iterator, self))

    def return_to(self, place: Place) -> Iterator[Any]:
        """Make an iterator that goes on from there; bars go on with as many rounds as they had."""
        name, facts = place
        return _BY_NAME[name].return_to(facts, self)

    def look_from(self, first: FirstLook) -> None:
        """Have the loop's header evaluated again from there."""
        self.first, self._large = first, _large_digests(first)

    def lost(self) -> str:
        """The reason why the loop's header cannot be evaluated again; empty: it can, or need not."""
        if self.first is None:
            return ""
        if self._large != _large_digests(self.first):
            return "an array that the loop's header reads has changed, and it is too large to be kept as it was"
        if not self.first:  # `resumable` was called by another name
            return "the loop's header does not call resumable() by its name"
        return next(iter(self.first["lost"]), "")

    def begin(self, iterator: Any) -> None:
        """Let bars that have not begun go over iterators, so that their places can be found; undone by :meth:`end`."""
        for bar in bars_of(iterator):
            self.exchanged.append((bar, bar.iterable))
            bar.iterable = iter(bar.iterable)

    def end(self) -> None:
        """Bars that have begun hold their iterators themselves; who goes over them once more begins anew."""
        while self.exchanged:
            bar, items = self.exchanged.pop()
            bar.iterable = items


def is_evaluated(place: Place | None) -> bool:
    """Tell if the loop's header is evaluated to return there; None: of a ``while`` loop."""
    return place is None or place[0] == _HEADER.name


def _large_digests(first: FirstLook) -> list[bytes]:
    """Digests of what it has only a view of."""
    views = (buffer for buffer in first.get("buffers", ()) if not isinstance(buffer, bytes))
    return [blake3(view, max_threads=2).digest() for view in views]


def is_container(items: Any) -> bool:
    """Tell if ``iter(items)`` changes nothing and can be saved."""
    return type(items) in _CONTAINERS or _is_array(items)


def can_be_saved(iterator: Any) -> bool:
    """Tell if its place can be found. Bars that have not begun may go over containers."""
    if is_container(iterator):
        return True
    return _adapter_of(iterator) is not None and all(map(can_be_saved, _parts(iterator)))


def is_made_again(value: Any) -> bool:
    """Tell if what such an object gives a loop depends on the object alone: then the loop's header makes it again."""
    kind = value if isinstance(value, type) else type(value)
    return any(adapter.gives_the_same(kind) for adapter in adapters_of(kind))


def is_without_effect(value: Any) -> bool:
    """Tell if a loop's header that calls or reads this does nothing that could be done twice."""
    kind = value if isinstance(value, type) else type(value)
    return not callable(value) or kind.__module__.partition(".")[0] in ("builtins", "tqdm") or is_made_again(value)


def bars_of(iterator: Any) -> Iterator[Any]:
    """All of tqdm's bars that it goes through."""
    if (bar := _bar_of(iterator)) is not None:
        yield bar
    for part in _parts(iterator):
        yield from bars_of(part)


def next_number(iterator: Any) -> int | None:
    """The next item of a range, or of an enumeration; None for any other."""
    if _bar_of(iterator) is not None:
        return next_number(_below_bar(iterator))
    if type(iterator) is enumerate:
        return int(iterator.__reduce__()[1][1])
    return next(copy.copy(iterator), None) if type(iterator) in _OF_RANGES else None


class Adapter:
    """One kind of iterator. All hooks are called between two rounds, on the cell's thread, and change nothing.

    Here: an iterator of a container, which pickle takes, or one of the notebook's own classes.
    """

    name = "iterator"

    def takes(self, iterator: Any) -> bool:
        """Tell if it is of this kind."""
        kind = type(iterator)
        return kind in _SAVED or kind is SetRest or (kind is _SEQUENCE and _is_array(_referent(iterator, object)))

    def parts(self, _iterator: Any) -> list[Any]:
        """Iterators that it goes over itself."""
        return []

    def place(self, iterator: Any, _places: Places) -> Any:
        """Facts for :meth:`return_to`, for a pickle."""
        return iterator

    def return_to(self, facts: Any, _places: Places) -> Iterator[Any]:
        """Make an iterator that goes on from there."""
        made: Iterator[Any] = facts
        return made


class _Own(Adapter):
    def takes(self, iterator: Any) -> bool:
        return type(iterator).__module__ == "__main__"


class _OfDict(Adapter):
    name = "dict"

    def takes(self, iterator: Any) -> bool:
        return type(iterator) in _OF_DICTS

    def place(self, iterator: Any, _places: Places) -> Any:
        left, items = len(iterator.__reduce__()[1][0]), _referent(iterator, dict)
        return (items, type(iterator).__name__, left)

    def return_to(self, facts: Any, _places: Places) -> Iterator[Any]:
        items, kind, left = facts
        view = next(view for made, view in _OF_DICTS.items() if made.__name__ == kind)
        iterator = iter(view(items or {}))
        for _ in range(len(items or {}) - left):
            next(iterator)
        return iterator


class _OfSet(Adapter):
    name = "set"

    def takes(self, iterator: Any) -> bool:
        return type(iterator) is _OF_SETS

    def place(self, iterator: Any, _places: Places) -> Any:
        return (_referent(iterator, (set, frozenset)), iterator.__reduce__()[1][0])

    def return_to(self, facts: Any, _places: Places) -> Iterator[Any]:
        items, left = facts
        return SetRest(items or (), left)


class SetRest(Iterator[Any]):
    """The rest of a set as it was saved, in its order; ends with an error as the set's own iterator does."""

    def __init__(self, items: Sized, left: list[Any]) -> None:
        self._items = items
        self._left = iter(left)
        self._size = len(items)

    def __next__(self) -> Any:
        if len(self._items) != self._size:
            raise RuntimeError("Set changed size during iteration")
        return next(self._left)


class _Bar(Adapter):
    name = "bar"

    def takes(self, iterator: Any) -> bool:
        return _bar_of(iterator) is not None

    def parts(self, iterator: Any) -> list[Any]:
        return [_below_bar(iterator)]

    def place(self, iterator: Any, places: Places) -> Any:
        bar = _bar_of(iterator)
        items = next((items for other, items in places.exchanged if other is bar), bar.iterable)
        is_printed = getattr(bar, "fp", None) == sys.stdout
        inner = places.place(_below_bar(iterator))
        return (type(bar), _settings_of(bar, places.rounds), is_printed, inner, items, places.names_of(bar))

    def return_to(self, facts: Any, places: Places) -> Iterator[Any]:
        bar_class, settings, is_printed, inner, items, names = facts
        bar = bar_class(places.return_to(inner), file=sys.stdout if is_printed else None, **settings)
        places.exchanged.append((bar, items))
        for name in names:
            places.bind(name, bar)
        made: Iterator[Any] = iter(bar)
        return made


class _Enumerate(Adapter):
    name = "enumerate"

    def takes(self, iterator: Any) -> bool:
        return type(iterator) is enumerate

    def parts(self, iterator: Any) -> list[Any]:
        return [iterator.__reduce__()[1][0]]

    def place(self, iterator: Any, places: Places) -> Any:
        part, number = iterator.__reduce__()[1]
        return (places.place(part), number)

    def return_to(self, facts: Any, places: Places) -> Iterator[Any]:
        part, number = facts
        return enumerate(places.return_to(part), number)


class _Zip(Adapter):
    name = "zip"

    def takes(self, iterator: Any) -> bool:
        return type(iterator) is zip

    def parts(self, iterator: Any) -> list[Any]:
        return list(iterator.__reduce__()[1])

    def place(self, iterator: Any, places: Places) -> Any:
        return ([places.place(part) for part in self.parts(iterator)], any(iterator.__reduce__()[2:]))

    def return_to(self, facts: Any, places: Places) -> Iterator[Any]:
        parts, is_strict = facts
        return zip(*map(places.return_to, parts), strict=is_strict)


class _Header(Adapter):
    """Iterator of an evaluated header: that is evaluated again, and gives the rounds of earlier attempts once more."""

    name = "header"

    def place(self, _iterator: Any, places: Places) -> Any:
        return places.first

    def return_to(self, facts: Any, places: Places) -> Iterator[Any]:
        for _ in range(places.rounds):
            next(places.evaluated, None)
        places.look_from(facts)
        return places.evaluated


_HEADER = _Header()
_ADAPTERS = (Adapter(), _OfDict(), _OfSet(), _Bar(), _Enumerate(), _Zip(), _Own())
_BY_NAME = {adapter.name: adapter for adapter in reversed((*_ADAPTERS, _HEADER))}


def _adapter_of(iterator: Any) -> Adapter | None:
    return next((adapter for adapter in _ADAPTERS if adapter.takes(iterator)), None)


def _parts(iterator: Any) -> list[Any]:
    adapter = _adapter_of(iterator)
    return [] if adapter is None else adapter.parts(iterator)


def _referent(iterator: Any, kind: Any) -> Any:
    """The thing that an iterator goes over; None: it is at its end."""
    return next((found for found in gc.get_referents(iterator) if isinstance(found, kind)), None)


def _bar_of(iterator: Any) -> Any:
    """The bar of tqdm whose items these are, or None."""
    if not inspect.isgenerator(iterator) or iterator.gi_frame is None:
        return None
    if iterator.gi_code.co_name != "__iter__" or iterator.gi_frame.f_globals.get("__name__") not in _BARS:
        return None
    return iterator.gi_frame.f_locals.get("self")


def _below_bar(iterator: Any) -> Any:
    """Return what a bar's iterator goes over: it says so itself once it has begun."""
    while inspect.isgenerator(iterator) and iterator.gi_frame is not None:
        known = iterator.gi_frame.f_locals
        if "iterable" in known:
            return known["iterable"]
        if "it" not in known:
            return known["self"].iterable
        iterator = known["it"]  # of a notebook's bar, which goes over that of a terminal's
    return iterator


def _settings_of(bar: Any, rounds: int) -> dict[str, Any]:
    known = vars(bar)
    found = {name: known[name] for name in _OF_BAR if name in known}
    if found.get("dynamic_ncols"):  # a function that measures
        found |= {"ncols": None, "dynamic_ncols": True}
    postfix = {"postfix": known["postfix"]} if known.get("postfix") else {}
    description = {"desc": known["desc"].removesuffix(": ")} if known.get("desc") else {}
    return {**found, **postfix, **description, "initial": known.get("initial", 0) + rounds}


def _is_array(value: Any) -> bool:
    return any(adapter.has_rows(type(value)) for adapter in adapters_of(type(value)))
