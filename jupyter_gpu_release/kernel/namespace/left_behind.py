"""Old objects that something still holds after others have come in their place, so that the receipt can say so."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from ...serialization.pickler import GraphPickler

_MOST_INSIDE = 20_000
#: what was written of it
_OURS = (types.FrameType, GraphPickler, pickle.PickleBuffer)
#: their objects are held by what belongs to them, in ways that cannot be told from another's
_HOLD_THEMSELVES = ("matplotlib", "IPython", "ipykernel", "ipywidgets")
_NOT_INSIDE = (type, types.ModuleType, types.FunctionType, types.FrameType)


def left_behind(olds: dict[str, Any], ours: Callable[[Any], Collection[int]]) -> list[str]:
    """Names of ``olds`` that somebody holds: a generator, a queue, a thread.

    ``ours``: ids of what holds one of them on our own account.
    """
    if not olds:
        return []
    held_by_threads = {id(value) for value in _locals_of_other_threads()}
    return [
        name
        for name in list(olds)
        if id(olds[name]) in held_by_threads or _is_held(olds[name], {*ours(olds[name]), id(olds)})
    ]


def _is_held(old: Any, ours: set[int]) -> bool:
    if str(type(old).__module__).partition(".")[0] in _HOLD_THEMSELVES:
        return False
    holders = [each for each in gc.get_referrers(old) if id(each) not in ours and not isinstance(each, _OURS)]
    if not holders:
        return False
    inside = _inside(old)
    return inside is not None and any(id(each) not in inside for each in holders)


def _inside(old: Any) -> set[int] | None:
    """Ids of what it holds itself, which may refer to it; None: too much."""
    seen, waiting = {id(old)}, [old]
    while waiting:
        for part in gc.get_referents(waiting.pop()):
            if id(part) not in seen and not isinstance(part, _NOT_INSIDE):
                if len(seen) > _MOST_INSIDE:
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


def sentences(names: Iterable[str]) -> list[str]:
    """For the receipt."""
    return [
        f"`{name}` is another object now; something that the notebook's names do not lead to (a thread, a generator, "
        "Out) still holds the old one"
        for name in names
    ]
