"""Iterators of Python's own: over lists, texts and ranges, ``zip``, ``map``, ``enumerate`` and those of itertools.

Others may hold one and go on with it, so they are brought to where the run has left them, or are made again.
"""

from __future__ import annotations

import collections
import gc
import itertools
import operator
import warnings
from collections.abc import Callable
from typing import Any

from ... import streams

#: whose place is a number
_WITH_PLACE = frozenset(
    map(type, (iter([]), reversed([]), iter(()), iter(""), iter("é"), iter(b""), iter(bytearray())))
)
_RANGES = frozenset(map(type, (iter(range(0)), iter(range(1 << 70)))))
#: less those that do not tell what they hold (``pairwise``)
_OF_ITERTOOLS = frozenset(
    kind
    for kind in vars(itertools).values()
    if isinstance(kind, type) and issubclass(kind, collections.abc.Iterator) and "__reduce__" in vars(kind)
)
#: what ``__reduce__`` gives are the objects that they hold; those over dicts and sets give a copy
KINDS = _WITH_PLACE | _RANGES | _OF_ITERTOOLS | {zip, map, filter, enumerate, reversed, type(iter(int, 0))}
TEE: type = type(itertools.tee(())[0])
#: what siblings have in common
KINDS |= {itertools._tee_dataobject}  # type: ignore[attr-defined]


def reduce_tee(_pickler: Any, tee: Any) -> Any:
    """With its siblings, which go on with what it has taken."""
    maker, arguments, place = _reduced(tee)
    siblings = [each for each in gc.get_referrers(place[0]) if type(each) is TEE and each is not tee]
    return maker, arguments, (place, siblings), None, None, set_tee


@streams.named
def set_tee(tee: Any, state: tuple[Any, list[Any]]) -> None:
    """Put it where it was."""
    tee.__setstate__(state[0])


def update(old: Any, new: Any) -> bool | None:
    """Bring ``old`` to where ``new`` is; None: it is no such iterator."""
    kind = type(old)
    if kind not in KINDS:
        return None
    if kind in _WITH_PLACE:
        _iter, (things,), *place = new.__reduce__()
        if not _is_over(old, things):
            return False
        if things or any(place):
            old.__setstate__(place[0])
        else:  # it has come to its end, and so forgotten over what it went
            collections.deque(old, maxlen=0)
        return True
    if kind in _RANGES:
        _iter, (left,), place = new.__reduce__()
        if place is None:  # Python 3.12 and later: a range of what is left, and a place in that
            (mine,) = old.__reduce__()[1]
            place = (left.start - mine.start) // left.step
        old.__setstate__(place)
        return True
    if kind is TEE:
        old.__setstate__(_reduced(new)[2])
        return True
    return False


def _is_over(iterator: Any, things: Any) -> bool:
    """Tell if it goes over these, or is to come to its end, or is there: it forgets then over what it went."""
    (mine,) = iterator.__reduce__()[1]
    if mine is things or not things:
        return True
    try:
        return bool(mine == things)
    except Exception:  # noqa: BLE001 - what is in them may be of any class
        return False


def remade(iterator: Any, new: Callable[[Any], Any]) -> Any:
    """The iterator over what ``new`` gives for the objects that it holds: itself, where they are the same."""
    maker, arguments, *state = _reduced(iterator)
    parts, place = new(arguments), [None if each is None else new(each) for each in state]
    if parts is arguments and all(map(operator.is_, place, state)):
        return iterator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = maker(*parts)
        if place and place[0] is not None:
            made.__setstate__(place[0])
        return made


def _reduced(iterator: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of itertools, whatever the user makes of warnings
        return iterator.__reduce__()
