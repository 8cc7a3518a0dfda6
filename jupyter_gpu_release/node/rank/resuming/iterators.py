"""Iterators that pickle brings to where they are: those of Python's and numpy's containers, enumerations, bars of tqdm.

What they go over stays one object with the cell's names. All other iterators are made again by the loop's header.
"""

from __future__ import annotations

import copy
import inspect
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_MADE_BY_ITER: tuple[Iterable[Any], ...] = (
    range(0),
    range(1 << 70),
    [],
    (),
    "",
    "\u0394",
    b"",
    bytearray(),
    {},
    {}.values(),
    {}.items(),
    set(),
    array("b"),
    deque(),
    reversed([]),
)
#: iterators that pickle takes as they are, with what they go over
_SAVED = frozenset(type(iter(made)) for made in _MADE_BY_ITER)
_OF_RANGES = frozenset(type(iter(made)) for made in _MADE_BY_ITER if type(made) is range)
_CONTAINERS = frozenset(map(type, _MADE_BY_ITER))
_SEQUENCE = type(iter(type("Sequence", (), {"__getitem__": lambda _self, _index: None})()))
#: iterators of iterators
_COMPOSED = (enumerate, zip)
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


#: a bar and what it went over
Exchanged = list[tuple[Any, Any]]


def exchange_in_bars(iterator: Any) -> Exchanged:
    """Let bars that have not begun go over iterators, so that these can be saved; undone by :func:`undo_in_bars`."""
    found: Exchanged = []
    if (bar := _bar_of(iterator)) is not None:
        found.append((bar, bar.iterable))
        bar.iterable = iter(bar.iterable)
        return found + exchange_in_bars(bar.iterable)
    for part in _parts(iterator):
        found += exchange_in_bars(part)
    return found


def undo_in_bars(exchanged: Exchanged) -> None:
    """Those that have begun hold their iterators themselves; who goes over them once more begins anew."""
    while exchanged:
        bar, items = exchanged.pop()
        bar.iterable = items


def is_container(items: Any) -> bool:
    """Tell if ``iter(items)`` changes nothing and can be saved."""
    return type(items) in _CONTAINERS or _is_array(items)


def can_be_saved(iterator: Any) -> bool:
    """Tell if :func:`pack` takes it."""
    kind = type(iterator)
    if _bar_of(iterator) is not None:
        return can_be_saved(_below_bar(iterator))
    if kind in _COMPOSED:
        return all(can_be_saved(part) for part in _parts(iterator))
    return kind in _SAVED or (kind is _SEQUENCE and _is_array(_over(iterator)))


def bars_of(iterator: Any) -> list[Any]:
    """All of tqdm's bars that it goes through."""
    if (bar := _bar_of(iterator)) is not None:
        return [bar, *bars_of(_below_bar(iterator))]
    return [bar for part in _parts(iterator) for bar in bars_of(part)]


def next_number(iterator: Any) -> int | None:
    """The next item of a range, or of an enumeration; None for any other."""
    if _bar_of(iterator) is not None:
        return next_number(_below_bar(iterator))
    if type(iterator) is enumerate:
        number: int = _reduced(iterator)[1][1]
        return number
    return next(copy.copy(iterator), None) if type(iterator) in _OF_RANGES else None


#: a bar → names to which it is bound
NamesOf = Callable[[Any], list[str]]


def pack(iterator: Any, rounds: int, names_of: NamesOf, exchanged: Exchanged) -> tuple[Any, ...]:
    """Describe it for a pickle. ``rounds``: of this attempt."""
    if (bar := _bar_of(iterator)) is not None:
        inner = pack(_below_bar(iterator), rounds, names_of, exchanged)
        items = next((items for other, items in exchanged if other is bar), bar.iterable)
        is_printed = getattr(bar, "fp", None) == sys.stdout
        return ("bar", type(bar), _settings_of(bar, rounds), is_printed, inner, items, names_of(bar))
    if type(iterator) is enumerate:
        part, number = _reduced(iterator)[1]
        return ("enumerate", pack(part, rounds, names_of, exchanged), number)
    if type(iterator) is zip:
        is_strict = _reduced(iterator)[2:]
        return ("zip", [pack(part, rounds, names_of, exchanged) for part in _parts(iterator)], *is_strict)
    return ("iterator", iterator)


def unpack(packed: tuple[Any, ...], bind: Callable[[str, Any], None], exchanged: Exchanged) -> Iterator[Any]:
    """Make it again; bars are bound to their names, and go on with as many rounds as they had."""
    kind, *rest = packed
    if kind == "bar":
        bar_class, settings, is_printed, inner, items, names = rest
        bar = bar_class(unpack(inner, bind, exchanged), file=sys.stdout if is_printed else None, **settings)
        exchanged.append((bar, items))
        for name in names:
            bind(name, bar)
        made: Iterator[Any] = iter(bar)
        return made
    if kind == "enumerate":
        return enumerate(unpack(rest[0], bind, exchanged), rest[1])
    if kind == "zip":
        return zip(*(unpack(part, bind, exchanged) for part in rest[0]), strict=any(rest[1:]))
    found: Iterator[Any] = rest[0]
    return found


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


def _reduced(iterator: Any) -> Any:
    return iterator.__reduce__()


def _parts(iterator: Any) -> list[Any]:
    if type(iterator) not in _COMPOSED:
        return []
    arguments = _reduced(iterator)[1]
    return [arguments[0]] if type(iterator) is enumerate else list(arguments)


def _over(iterator: Any) -> Any:
    arguments = _reduced(iterator)[1]
    return arguments[0] if arguments else None


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray
