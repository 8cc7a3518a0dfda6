"""Random generators, which belong to no name: their states travel in with a cell, and back.

Only libraries that are loaded are looked at. Environment variables and settings: :mod:`.library_settings`. What does
not travel: thread counts, locales.
"""

from __future__ import annotations

from typing import Any

from ...adapters.registry import loaded_adapters

Rng = dict[str, Any]


def capture_rng() -> Rng:
    """The states of the libraries' global generators."""
    states = {adapter.name: adapter.random_state() for adapter in loaded_adapters()}
    return {name: state for name, state in states.items() if state is not None}


def restore_rng(states: Rng) -> Rng:
    """Set the states of libraries that are loaded; returns those of the others."""
    left = dict(states)
    for adapter in loaded_adapters():
        if adapter.name in left and adapter.set_random_state(left[adapter.name]):
            del left[adapter.name]
    return left


def seed_generators(states: Rng, *, has_gpu: bool) -> None:
    """In a rank: as the notebook has them, else fresh (ranks are forks of one process)."""
    restore_rng(states)
    for adapter in loaded_adapters():
        if adapter.name not in states:
            adapter.seed_afresh()
        if has_gpu:
            adapter.seed_devices()


def step_after_devices() -> None:
    """A cell that drew from a GPU's generator moves the global one, so that the next cell's seed is another."""
    for adapter in loaded_adapters():
        adapter.step_after_devices()
