"""States of random generators, exactly as they are: those of this process and those of its GPUs."""

from __future__ import annotations

from typing import Any

from ....adapters.registry import adapters_of, first_answer, loaded_adapters
from ....serialization.process_state import random_states


def capture() -> dict[str, Any]:
    """All of them."""
    devices = {adapter.name: adapter.device_random_state() for adapter in loaded_adapters()}
    states = {name: state for name, state in devices.items() if state is not None}
    return {"here": random_states.capture_rng(), "devices": states}


def restore(states: dict[str, Any]) -> None:
    """Set them; of GPUs that are not here none."""
    random_states.restore_rng(states["here"])
    devices = states.get("devices", {})
    for adapter in loaded_adapters():
        if adapter.name in devices:
            adapter.set_device_random_state(devices[adapter.name])


def is_generator(thing: Any) -> bool:
    """Tell if it is a generator of random numbers of the cell's own."""
    return state_of(thing) is not None


def state_of(generator: Any) -> Any:
    """A generator's state, for :func:`set_state`."""
    return first_answer(adapter.generator_state(generator) for adapter in adapters_of(type(generator)))


def set_state(generator: Any, state: Any) -> None:
    """Have it go on as one of its kind did in this state."""
    for adapter in adapters_of(type(generator)):
        if adapter.generator_state(generator) is not None:
            adapter.set_generator_state(generator, state)
