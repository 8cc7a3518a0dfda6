"""Old objects that something still holds after others have come in their place, so that the receipt can say so."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from ...adapters.registry import adapters_of
from ...serialization.pickler import GraphPickler

_MOST_INSIDE, _MOST_INSIDE_ALL = 20_000, 200_000
#: what was written of it
_OURS = (types.FrameType, GraphPickler, pickle.PickleBuffer)
_NOT_INSIDE = (type, types.ModuleType, types.FunctionType, types.FrameType)


def left_behind(olds: dict[str, Any], ours: Callable[[Any], Collection[int]]) -> list[str]:
    """Names of ``olds`` that somebody holds: a generator, a queue, a thread.

    ``ours``: ids of what holds one of them on our own account.
    """
    if not olds:
        return []
    held_by_threads = {id(value) for value in _locals_of_other_threads()}
    holders = _holders(olds, {id(olds), *(each for old in olds.values() for each in ours(old))})
    left, found = _MOST_INSIDE_ALL, []
    for name, old in olds.items():
        is_held = id(old) in held_by_threads
        if not is_held and holders[id(old)]:
            inside = _inside(old, min(left, _MOST_INSIDE))
            left -= _MOST_INSIDE if inside is None else len(inside)
            is_held = inside is not None and not holders[id(old)] <= inside
        found += [name] if is_held else []
    return found


def _holders(olds: dict[str, Any], ours: set[int]) -> dict[int, set[int]]:
    """Id of an old object → ids of what refers to it. All that this process has is looked at once, for all of them."""
    found: dict[int, set[int]] = {id(old): set() for old in olds.values()}
    wanted = {id(old) for old in olds.values() if not _holds_itself(type(old))}
    looked_at = tuple(olds.values())  # from Python 3.13 on the arguments are found, too
    for holder in gc.get_referrers(*looked_at):
        if holder is looked_at or id(holder) in ours or issubclass(type(holder), _OURS):
            continue
        for ident in wanted.intersection(map(id, gc.get_referents(holder))):
            found[ident].add(id(holder))
    return found


def _holds_itself(kind: type) -> bool:
    """Tell if it cannot be told whether another holds such an object, or what belongs to it."""
    return any(adapter.holds_itself(kind) for adapter in adapters_of(kind))


def _inside(old: Any, most: int) -> set[int] | None:
    """Ids of what it holds itself, which may refer to it; None: too much."""
    seen, waiting = {id(old)}, [old]
    while waiting:
        for part in gc.get_referents(waiting.pop()):
            if id(part) not in seen and not issubclass(type(part), _NOT_INSIDE):
                if len(seen) > most:
                    return None
                seen.add(id(part))
                waiting.append(part)
    return seen


def _locals_of_other_threads() -> Iterator[Any]:
    mine = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        at: types.FrameType | None = frame if ident != mine else None
        while at is not None:
            yield from list(at.f_locals.values())
            at = at.f_back


def left_behind_sentences(names: Iterable[str]) -> list[str]:
    """Sentences for the receipt."""
    return [
        f"`{name}` is another object now; something (a thread, a generator, Out, one of very many objects) still holds "
        "the old one"
        for name in names
    ]


def parts_left_sentences(classes: Iterable[str]) -> list[str]:
    """Sentences for the receipt."""
    return [
        f"an object of `{kind}` is another one now; something still holds the old one" for kind in sorted(set(classes))
    ]
