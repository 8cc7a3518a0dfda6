"""State that belongs to no name: random generators, in and back (settings of libraries:
:mod:`.process_state.library_settings`).

Only libraries that are loaded are looked at. Environment variables: :mod:`.process_state.environment`. What does not
travel: thread counts, locales.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import random
import sys
from typing import Any

Rng = dict[str, Any]


def capture_rng() -> Rng:
    """The states of the global generators: ``random``, numpy, torch (CPU), TensorFlow and Keras (once seeded)."""
    states: Rng = {"random": random.getstate()}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        states["numpy"] = pickle.dumps(numpy.get_state(legacy=False), protocol=5)  # as bytes: no buffer of its own
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = bytes(torch.get_rng_state().numpy().data)
    context = _tensorflow()
    if context is not None and context._seed is not None:  # else its operations draw from the system
        states["tensorflow"] = (context._seed, context._rng.getstate())
    if (keras := _keras_state()) is not None:
        states["keras"] = keras
    return states


def _tensorflow() -> Any:
    """TensorFlow's context, where its operations get their seeds from."""
    module = sys.modules.get("tensorflow.python.eager.context")
    return module.context() if module is not None and "tensorflow" in sys.modules else None


def _keras() -> Any:
    """The attributes that Keras has for the whole process, or rather for this thread."""
    module = sys.modules.get("keras.src.backend.common.global_state")
    return module.GLOBAL_STATE_TRACKER if module is not None and "keras" in sys.modules else None


_KERAS_SEED, _KERAS_GENERATOR = "global_random_seed", "global_seed_generator"


def _keras_state() -> Any:
    """The seed that was set, and what ``keras.random`` draws from: its settings and its state."""
    tracker = _keras()
    seed, generator = (getattr(tracker, name, None) for name in (_KERAS_SEED, _KERAS_GENERATOR))
    if seed is None and generator is None:
        return None
    drawn = None
    if generator is not None:
        numpy = sys.modules["keras"].ops.convert_to_numpy(generator.state.value)
        drawn = (generator.get_config(), numpy.tolist())
    return seed, drawn


def _set_keras_state(tracker: Any, state: Any) -> None:
    seed, drawn = state
    generator = None
    if drawn is not None:
        settings, numbers = drawn
        generator = sys.modules["keras"].random.SeedGenerator(**{**settings, "seed": settings["seed"] or 0})
        generator._initial_seed = settings["seed"]
        generator.state.assign(numbers)
    setattr(tracker, _KERAS_SEED, seed)
    setattr(tracker, _KERAS_GENERATOR, generator)


def restore_rng(states: Rng) -> Rng:
    """Set the states of libraries that are loaded; returns those of the others."""
    left: Rng = {}
    for name, state in states.items():
        if not _restore_one(name, state):
            left[name] = state
    return left


def _restore_one(name: str, state: Any) -> bool:
    if name == "random":
        random.setstate(state)
    elif name == "numpy" and "numpy.random" in sys.modules:
        with contextlib.suppress(ValueError, TypeError):  # another bit generator was set there
            sys.modules["numpy.random"].set_state(pickle.loads(state))
    elif name == "torch" and hasattr(sys.modules.get("torch"), "set_rng_state"):
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    elif name == "tensorflow" and (context := _tensorflow()) is not None:
        seed, drawn = state
        context._set_global_seed(seed)
        context._rng.setstate(drawn)
    elif name == "keras" and (tracker := _keras()) is not None:
        _set_keras_state(tracker, state)
    else:
        return False
    return True


def seed_fresh(states: Rng) -> None:
    """In a forked process: generators for which no state came must not repeat their siblings' numbers."""
    if "numpy" not in states and "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" not in states and "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def seed_devices() -> None:
    """CUDA generators from torch's CPU one: its seed when it is fresh from ``manual_seed``, else from its state.

    Lazy: does not touch the GPU before the cell does.
    """
    torch = sys.modules["torch"]
    state, seed = torch.get_rng_state(), torch.initial_seed()
    if not torch.equal(state, torch.Generator().manual_seed(seed).get_state()):
        seed = int.from_bytes(hashlib.blake2b(bytes(state.numpy().data), digest_size=7).digest(), "big")
    torch.cuda.manual_seed_all(seed)


def step_after_devices() -> None:
    """A cell that drew from a CUDA generator moves the CPU one, so that the next cell's seed is another."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        torch.rand(1)
