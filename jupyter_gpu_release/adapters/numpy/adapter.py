"""The adapter of numpy."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...unpickling import Trust, loads
from ..adapter import Adapter, Reducer
from ..memory import Layout, Place
from ..singletons import by_name
from . import settings


def _arrays() -> Any:
    return sys.modules["numpy"].ndarray


def _is_generator(kind: type) -> bool:
    random = sys.modules.get("numpy.random")
    return random is not None and issubclass(kind, random.RandomState | random.BitGenerator)


def _reduce_generator(pickler: Any, generator: Any) -> Any:
    """The one behind ``np.random.rand()`` is the receiver's own: its state travels with that of all libraries."""
    usual = sys.modules["numpy.random.mtrand"]._rand
    if generator is usual:
        return by_name(pickler, "numpy.random.mtrand", "_rand")
    is_part = generator is usual._bit_generator
    return by_name(pickler, "numpy.random.mtrand", "_rand._bit_generator") if is_part else NotImplemented


class NumpyAdapter(Adapter):
    """Arrays, generators of random numbers, settings."""

    name = "numpy"
    gives_values = True
    settings = settings.ALL

    def _of(self, part: str) -> Any:
        """A module here that needs numpy."""
        return importlib.import_module(f".{part}", __package__)

    def has_rows(self, kind: type) -> bool:
        return kind.__name__ == "ndarray"

    carried_calls = ("numpy.set_printoptions", "numpy.seterr", "seterrcall", "set_bit_generator")

    def extended_classes(self) -> Iterable[type]:
        return [settings.ToldNumpy]

    def extensions(self) -> Iterable[tuple[type, str, Any]]:
        return settings.told()

    def reducer_for(self, kind: type) -> Reducer | None:
        from . import arrays, generators

        found = generators.reducer_for(kind)
        if found is not None:
            return found
        return _reduce_generator if _is_generator(kind) else arrays.reducer_for(kind)

    def reading(self, function: Callable[..., Any]) -> Callable[..., Any]:
        is_array_maker = function.__name__ == "_frombuffer"
        return functools.partial(self._of("arrays").place_array, function) if is_array_maker else function

    def compute_a_little(self) -> None:
        import numpy as np

        matrix = np.ones((256, 256))
        assert float((matrix @ matrix)[0, 0]) == 256.0

    # ------------------------------------------------------------------------------- memory and identity
    def update_in_place(self, old: Any, new: Any) -> bool | None:
        from . import in_place

        return in_place.update(old, new)

    def can_change(self, kind: type) -> bool | None:
        is_generator = str(kind.__module__).startswith("numpy.random")
        return True if is_generator or issubclass(kind, (_arrays(), sys.modules["numpy"].void)) else None

    def hidden_parts(self, thing: Any) -> Iterable[Any]:
        """The garbage collector does not ask arrays."""
        if not isinstance(thing, _arrays()):
            return (thing.base,) if isinstance(thing, sys.modules["numpy"].void) else ()
        return (thing.base, *thing.flat) if thing.dtype.hasobject else (thing.base,)

    def items_of(self, thing: Any) -> Any:
        is_of_objects = type(thing) is _arrays() and thing.dtype.hasobject and not thing.dtype.fields
        return thing.flat if is_of_objects else None

    def set_items(self, thing: Any, items: dict[int, Any]) -> None:
        if thing.ndim and thing.flags.writeable:
            for place, item in items.items():
                thing.flat[place] = item

    def is_opaque(self, kind: type) -> bool:
        return str(kind.__module__).startswith("numpy")

    def words_of(self, value: Any) -> tuple[str, ...] | None:
        """Types of elements."""
        if not isinstance(value, sys.modules["numpy"].dtype) or value.metadata or value.hasobject:
            return None
        return value.str, repr(value), type(value).__qualname__, value.type.__module__

    def nbytes_of(self, value: Any) -> int | None:
        return value.nbytes if isinstance(value, _arrays()) else None

    def shape_of(self, value: Any) -> tuple[int, ...] | None:
        return getattr(value, "shape", None)

    def layout_of(self, thing: Any) -> Layout | None:
        return self._of("memory").layout_of(thing) if isinstance(thing, _arrays()) else None

    def kind_of_view(self, view: Any) -> tuple[type | None, bool]:
        return None, bool(view.flags.writeable)

    def bytes_of(self, thing: Any, *, to_write: bool) -> tuple[int, Any] | None:
        from . import memory

        return memory.bytes_of(thing, to_write=to_write)

    def view_at(self, live: Any, place: Place, address: int, strides: tuple[int, ...]) -> Any:
        return self._of("memory").view_at(live, place, address, strides)

    def replaced_memory(self, old: Any, new: Any) -> dict[Any, Any]:
        return self._of("memory").replaced_memory(old, new) if isinstance(old, _arrays()) else {}

    def over_new_memory(self, thing: Any, replaced: Mapping[Any, Any]) -> Any:
        has_memory = isinstance(thing, (_arrays(), sys.modules["numpy"].void))
        return self._of("memory").over_new_memory(thing, replaced) if has_memory else thing

    def fill_view(self, old: Any, new: Any) -> bool:
        return type(old) is _arrays() and self._of("memory").fill_view(old, new)

    def writing_rank(self, value: Any) -> int | None:
        return 2 if type(value) is _arrays() and self._of("memory").is_partial_view(value) else 0

    # ------------------------------------------------------------------------------- random numbers
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
        random, found = sys.modules["numpy.random"], loads(state, Trust.OWN)
        with contextlib.suppress(ValueError, TypeError, AttributeError):  # a bit generator that this version has not
            if type(random.get_bit_generator()).__name__ != found["bit_generator"]:
                random.set_bit_generator(getattr(random, found["bit_generator"])())
            random.set_state(found)
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
