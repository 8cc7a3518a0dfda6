"""numpy: arrays, universal functions, generators of random numbers, settings."""

from __future__ import annotations

import contextlib
import pickle
import sys
from typing import Any

from ..adapter import Adapter, Reducer
from . import settings


class NumpyAdapter(Adapter):
    """What numpy makes."""

    name = "numpy"
    settings = settings.ALL

    def reducer_for(self, kind: type) -> Reducer | None:
        from . import arrays

        return arrays.reducer_for(kind)

    def samples(self) -> dict[str, Any]:
        array = sys.modules["numpy"].zeros((16, 16))
        return {"array": array, "part": array[1:]}

    def random_state(self) -> Any:
        if "numpy.random" not in sys.modules:
            return None
        state = sys.modules["numpy.random"].get_state(legacy=False)
        return pickle.dumps(state, protocol=5)  # as bytes: no buffer of its own

    def set_random_state(self, state: Any) -> bool:
        if "numpy.random" not in sys.modules:
            return False
        with contextlib.suppress(ValueError, TypeError):  # another bit generator was set there
            sys.modules["numpy.random"].set_state(pickle.loads(state))
        return True

    def generator_state(self, generator: Any) -> Any:
        random = sys.modules.get("numpy.random")
        if random is None or not isinstance(generator, random.Generator | random.BitGenerator | random.RandomState):
            return None
        if isinstance(generator, random.RandomState):
            return generator.get_state()
        return getattr(generator, "bit_generator", generator).state

    def set_generator_state(self, generator: Any, state: Any) -> None:
        if hasattr(generator, "set_state"):
            generator.set_state(state)
        else:
            getattr(generator, "bit_generator", generator).state = state

    def seed_afresh(self) -> None:
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()


ADAPTER = NumpyAdapter()
