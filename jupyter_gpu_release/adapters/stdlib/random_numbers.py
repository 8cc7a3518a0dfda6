"""The module ``random``."""

from __future__ import annotations

import random
from typing import Any

from ... import streams
from ..adapter import Adapter, Reducer
from ..singletons import by_name


def reduce_usual(pickler: Any, generator: random.Random) -> Any:
    """The one behind ``random.random()`` is the receiver's own: its state travels with that of all libraries."""
    return by_name(pickler, "random", "_inst") if generator is vars(random)["_inst"] else NotImplemented


def reduce_random(_pickler: Any, generator: random.Random) -> Any:
    """A generator of a class of the notebook, with its attributes: pickle would call the class, and forget them."""
    attributes = object.__getstate__(generator)
    return make_random, (type(generator),), (attributes, generator.getstate()), None, None, set_random


def reduce_system_random(_pickler: Any, generator: Any) -> Any:
    """It has no state."""
    return type(generator), ()


@streams.named
def make_random(kind: Any) -> Any:
    """A generator of random numbers, past what its class does when one is made."""
    return random.Random.__new__(kind)


@streams.named
def set_random(generator: random.Random, state: tuple[Any, Any]) -> None:
    """Attributes, slots and state."""
    own, drawn = state
    attributes, slots = own if isinstance(own, tuple) else (own, None)
    vars(generator).update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(generator, name, value)
    random.Random.setstate(generator, drawn)


class RandomAdapter(Adapter):
    """Generators of the standard library, and of classes made from them."""

    name = "random"

    def reducer_for(self, kind: type) -> Reducer | None:
        if not issubclass(kind, random.Random):
            return None
        if kind is random.SystemRandom:
            return reduce_system_random
        if kind is random.Random:
            return reduce_usual
        own = any(
            getattr(kind, name) is not getattr(random.Random, name) for name in ("__reduce__", "getstate", "setstate")
        )
        return None if own else reduce_random

    def random_state(self) -> Any:
        return random.getstate()

    def set_random_state(self, state: Any) -> bool:
        random.setstate(state)
        return True

    def generator_state(self, generator: Any) -> Any:
        is_usual = isinstance(generator, random.Random) and type(generator).getstate is random.Random.getstate
        return generator.getstate() if is_usual else None

    def set_generator_state(self, generator: Any, state: Any) -> None:
        generator.setstate(state)


ADAPTER = RandomAdapter()
