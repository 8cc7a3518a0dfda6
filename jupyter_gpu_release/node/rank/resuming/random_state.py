"""States of random generators, exactly as they are: those of this process and those of its GPUs."""

from __future__ import annotations

import random
import sys
from typing import Any

from ....serialization.process_state import random_states


def capture() -> dict[str, Any]:
    """All of them."""
    states: dict[str, Any] = {"here": random_states.capture_rng()}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        states["cuda"] = [bytes(state.numpy().data) for state in torch.cuda.get_rng_state_all()]
    return states


def restore(states: dict[str, Any]) -> None:
    """Set them; of GPUs that are not here none."""
    random_states.restore_rng(states["here"])
    torch = sys.modules.get("torch")
    if "cuda" in states and torch is not None and torch.cuda.is_available():
        for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8), device)


def is_generator(thing: Any) -> bool:
    """Tell if it is a generator of random numbers of the cell's own: of torch, of numpy, a ``random.Random``."""
    kind: Any = type(thing)
    if isinstance(thing, random.Random):
        return bool(kind.getstate is random.Random.getstate)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(thing, torch.Generator):
        return True
    return numpy is not None and isinstance(
        thing, numpy.random.Generator | numpy.random.BitGenerator | numpy.random.RandomState
    )


def state_of(generator: Any) -> Any:
    """A generator's state, for :func:`set_state`."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "get_state"):  # torch's
        return generator.get_state()
    return getattr(generator, "bit_generator", generator).state


def set_state(generator: Any, state: Any) -> None:
    """Have it go on as one of its kind did in this state."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        getattr(generator, "bit_generator", generator).state = state
