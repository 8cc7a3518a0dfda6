"""The order of a set's elements: pickle adds them in that order, which gives another one.

A set iterates over its hash table. Where an element stands there depends on what was there when it was added, and
pickle's way (all elements in their order, while the table grows) is not how the set was made. So a set that pickle
would put into another order gets a recipe: in which order to add its elements to a table of which size. Elements
that stand where their hash says go first, in any order; each of the others after those that were in its way.
Deleted elements are in the way, too: in their places stand fillers for a while.

Source: CPython 3.11, Objects/setobject.c. A recipe is tried out before it is sent, so that another layout of sets
means no recipe, never a wrong one.
"""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any

#: the table of a small set is in the object itself
_SMALL = 8
_OUTGROWS_SMALL = 5
_LINEAR_PROBES = 9
_PERTURB_SHIFT = 5
_ENTRY_BYTES = 16
_DELETED = -1
_BY_IDENTITY: Any = object.__hash__
_EMPTY_BYTES = sys.getsizeof(set())
#: elements of sets that are looked at, in all (a few microseconds each); further ones come in pickle's order
MOST = 10_000

#: (set, elements to add by their numbers in the loaded set, a filler's place p as -1 - p; how many at once)
Recipe = tuple[Any, bytes, int]


def is_kept_by_pickle(thing: set[Any] | frozenset[Any]) -> bool:
    """Tell if it has the same order when its elements are added in that order."""
    order = list(thing)
    return _same(order, list(set(order)))


def order_recipes(things: Iterable[Any]) -> list[Recipe]:
    """For the sets among ``things`` that pickle would put into another order."""
    found, left = [], MOST
    for thing in things:
        if type(thing) is set and 1 < len(thing) <= left:
            left -= len(thing)
            try:
                recipe = _recipe(thing)
            except Exception:  # noqa: BLE001 - elements' own hash or comparison
                continue
            if recipe is not None:
                found.append(recipe)
    return found


def restore_order(made: Iterable[Recipe]) -> None:
    """Put loaded sets into the order that they had."""
    for thing, numbers, at_once in made:
        _fill(thing, list(thing), array("i", numbers), at_once)


def copy_content(target: set[Any], source: set[Any], elements: Iterable[Any] | None = None) -> None:
    """Make ``target`` what ``source`` is, in its order; or of equal ``elements``, instead of the ones that it has."""
    made, content = order_recipes([source]), list(set.__iter__(source) if elements is None else elements)
    set.clear(target)
    set.update(target, content)  # one by one, as pickle does
    restore_order([(target, numbers, at_once) for _, numbers, at_once in made])


def _recipe(thing: set[Any]) -> Recipe | None:
    order = list(thing)
    loaded = list(set(order))
    if _same(order, loaded) or all(type(element).__hash__ is _BY_IDENTITY for element in order[:10]):
        return None
    table = _Table.of(thing)
    if table is None or len(table.places) != len(order):
        return None
    number_of = {id(element): number for number, element in enumerate(loaded)}
    numbers = [number_of[id(element)] for element in order]
    for line, at_once in table.ways():
        wanted = array("i", [numbers[entry] if entry >= 0 else entry for entry in line])
        trial = set(order)
        _fill(trial, loaded, wanted, at_once)
        if _same(order, list(trial)):
            return thing, wanted.tobytes(), at_once
    return None


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(_is, one, other))


def _is(one: Any, other: Any) -> bool:
    return one is other


class _Filler:
    """Stands in one place of a table."""

    __slots__ = ("_hash",)

    def __init__(self, place: int) -> None:
        self._hash = place | 1 << 40

    def __hash__(self) -> int:
        return self._hash


def _fill(thing: set[Any], elements: list[Any], numbers: array[int], at_once: int) -> None:
    if len(elements) != sum(number >= 0 for number in numbers):  # a placeholder's element is missing
        return
    line = [elements[number] if number >= 0 else _Filler(-1 - number) for number in numbers]
    thing.clear()
    thing.update(dict.fromkeys(line[:at_once]))  # makes the table as large as it has to be for these
    thing.update(line[at_once:])
    for entry in line:
        if type(entry) is _Filler:
            thing.discard(entry)


@dataclass(frozen=True)
class _Table:
    """``places``: of the elements, in order. ``hashes``: theirs. ``deleted``: places of deleted elements."""

    size: int
    places: list[int]
    hashes: list[int]
    deleted: list[int]

    @classmethod
    def of(cls, thing: set[Any]) -> _Table | None:
        """None: sets look otherwise here."""
        _fill, used, mask, address = (ctypes.c_ssize_t * 4).from_address(id(thing) + 16)
        outside = sys.getsizeof(thing) - _EMPTY_BYTES
        if used != len(thing) or (mask + 1) * _ENTRY_BYTES != (outside or _SMALL * _ENTRY_BYTES):
            return None
        words = array("q", ctypes.string_at(address, (mask + 1) * _ENTRY_BYTES))
        keys = words[::2]
        taken, hashes = list(compress(range(mask + 1), keys)), list(compress(words[1::2], keys))
        places = [place for place, value in zip(taken, hashes, strict=True) if value != _DELETED]
        deleted = [place for place, value in zip(taken, hashes, strict=True) if value == _DELETED]
        return cls(mask + 1, places, [value for value in hashes if value != _DELETED], deleted)

    def ways(self) -> Iterator[tuple[list[int], int]]:
        """Lines of elements (numbers in order; fillers as -1 - place), and how many to add at once."""
        line = [-1 - place for place in self.deleted] + self._line()
        if self.size == _SMALL:
            yield line, 0
            return
        least = max(self.size // 4, _OUTGROWS_SMALL)
        if len(line) < least:
            yield line, 0  # the table grows to this size by itself
            taken = {*self.places, *self.deleted}
            free = (place for place in range(self.size) if place not in taken)
            line = [*line, *(-1 - place for place in islice(free, least - len(line)))]
        yield line, min(len(line), self.size // 2 - 1)

    def _line(self) -> list[int]:
        mask = self.size - 1
        away = [
            n for n, (place, value) in enumerate(zip(self.places, self.hashes, strict=True)) if value & mask != place
        ]
        waiting = dict.fromkeys(away)
        line = [number for number in range(len(self.places)) if number not in waiting]
        by_place = {self.places[number]: number for number in away}
        before = {n: [by_place[p] for p in self._passed(n) if p in by_place] for n in away}
        while waiting:
            ready = [number for number in waiting if waiting.keys().isdisjoint(before[number])]
            if not ready:
                break  # the trial will tell
            line += ready
            for number in ready:
                del waiting[number]
        return line + list(waiting)

    def _passed(self, number: int) -> list[int]:
        """Places at which an element was not put, because others stood there."""
        mask, place, value = self.size - 1, self.places[number], self.hashes[number]
        perturb, start = value & 0xFFFF_FFFF_FFFF_FFFF, value & mask
        passed: list[int] = []
        while len(passed) < self.size * 2:
            last = start + _LINEAR_PROBES
            for tried in range(start, last + 1 if last <= mask else start + 1):
                if tried == place:
                    return passed
                passed.append(tried)
            perturb >>= _PERTURB_SHIFT
            start = (start * 5 + 1 + perturb) & mask
        return passed
