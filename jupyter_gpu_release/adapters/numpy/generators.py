"""Classes made from numpy's generators of random numbers: numpy's own way makes one of numpy's class of each."""

from __future__ import annotations

from typing import Any

import numpy

from ... import streams
from ..adapter import Reducer

_BASES = (numpy.random.RandomState, numpy.random.Generator)


def reducer_for(kind: type) -> Reducer | None:
    """The reducer for such a class, unless it says itself how it is pickled; else None."""
    base = base_of(kind)
    return reduce_generator if base not in (None, kind) and kind.__reduce__ is base.__reduce__ else None


def base_of(kind: type) -> type | None:
    """The class of numpy's from which a class of generators is made."""
    return next((base for base in _BASES if issubclass(kind, base)), None)


def reduce_generator(_pickler: Any, generator: Any) -> Any:
    """Its bit generator, attributes, and the number that a normal distribution has left over."""
    left = generator.get_state(legacy=False) if hasattr(generator, "get_state") else None
    state = (dict(vars(generator)) if hasattr(generator, "__dict__") else {}, left)
    return make_drawing, (type(generator), generator._bit_generator), state, None, None, set_drawing


@streams.named
def make_drawing(kind: Any, bits: Any) -> Any:
    """A generator of this class, without its own ``__init__``."""
    made = kind.__new__(kind)
    base_of(kind).__init__(made, bits)  # type: ignore[misc]
    return made


@streams.named
def set_drawing(generator: Any, state: tuple[dict[str, Any], Any]) -> None:
    """Set once the generator is known to the stream."""
    attributes, left = state
    vars(generator).update(attributes)
    if left is not None:
        generator.set_state(left)
