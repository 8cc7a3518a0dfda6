"""The adapter of traitlets: who observes an object's traits, which its own way of pickling leaves out."""

from __future__ import annotations

import sys
from typing import Any

from .. import streams
from .adapter import Adapter, Reducer


def reduce_traits(pickler: Any, thing: Any) -> Any:
    """An object with the observers that were given to it; those of its class are there again by themselves."""
    reduced = thing.__reduce_ex__(4)
    observers = [
        (observer, name, kind)
        for name, kinds in thing._trait_notifiers.items()
        for kind, found in kinds.items()
        for observer in found
        if not isinstance(observer, sys.modules["traitlets"].EventHandler)
    ]
    sent = [each for each in observers if pickler.can_write(each[0])]
    if len(sent) < len(observers):
        pickler.remarks.append("without an observer, which cannot be pickled")
    if not sent or any(part is not None for part in reduced[3:]):
        return reduced
    return (*reduced[:2], (reduced[2], sent), None, None, set_traits)


@streams.named
def set_traits(thing: Any, state: tuple[Any, list[tuple[Any, Any, Any]]]) -> None:
    """Its own state, and who observes it."""
    own, observers = state
    thing.__setstate__(own)
    for observer, name, kind in observers:
        thing._add_notifiers(observer, name, kind)


class TraitletsAdapter(Adapter):
    """Objects with traits."""

    name = "traitlets"

    def reducer_for(self, kind: type) -> Reducer | None:
        usual: Any = getattr(sys.modules["traitlets"], "HasTraits", None)
        has_own = usual is None or any(
            getattr(kind, name, None) is not getattr(usual, name)
            for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
        )
        return None if has_own or not issubclass(kind, usual) else reduce_traits


ADAPTER = TraitletsAdapter()
