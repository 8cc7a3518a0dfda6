"""Accelerate: its states, which share their attributes with all others of their class.

That class is a library's, so it does not travel, and what it keeps goes along with them.
"""

from __future__ import annotations

from typing import Any

from .. import streams
from .adapter import Adapter, Reducer

_SHARED = "_shared_state"


class AccelerateAdapter(Adapter):
    """Objects of classes that keep their objects' attributes."""

    def reducer_for(self, kind: type) -> Reducer | None:
        return reduce_sharing if isinstance(getattr(kind, _SHARED, None), dict) else None


def reduce_sharing(_pickler: Any, thing: Any) -> Any:
    """An object of such a class, with what all of them know."""
    if vars(thing) is not getattr(type(thing), _SHARED):
        return NotImplemented
    return make_sharing, (type(thing),), dict(vars(thing)), None, None, fill_shared


@streams.named
def make_sharing(kind: Any) -> Any:
    """One more that shares the attributes of its class."""
    made = kind.__new__(kind)
    made.__dict__ = getattr(kind, _SHARED)
    return made


@streams.named
def fill_shared(thing: Any, state: dict[str, Any]) -> None:
    """All of them know now what those did that were sent; other threads see the old or the new value of each."""
    vars(thing).update(state)


ADAPTER = AccelerateAdapter()
