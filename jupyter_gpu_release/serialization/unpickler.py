"""Reads streams: fast, or tolerantly with placeholders for what is missing here.

A placeholder knows how its object is made, so it can be sent on to the next GPU cell, where the package is.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any, ClassVar

from .. import streams
from ..adapters.memory import placed
from ..errors import LoadError, MissingHereError
from ..unpickling import SteppedUnpickler, Trust, Unpickler
from .rebuild import Rebuilder


class GraphUnpickler(Unpickler):
    """Several pickles with one memo; ``load`` is called once for each."""

    def __init__(self, file: io.BytesIO, trust: Trust, rebuilder: Rebuilder, buffers: Sequence[Any]) -> None:
        super().__init__(file, trust, writable_buffers(buffers))
        self._rebuilder = rebuilder

    def find_class(self, module: str, name: str) -> Any:
        """A global of the stream."""
        return self._rebuilder.bound(super().find_class(module, name))

    def persistent_load(self, number: int | str) -> Any:
        """An object that the stream refers to."""
        return self._rebuilder.referred(number)


def writable_buffers(buffers: Sequence[Any]) -> list[Any]:
    """Objects built over the buffers must be writable, as they were."""
    return list(map(placed, buffers))


class MissingGlobal:
    """Stands for a class or function that cannot be imported here."""

    def __init__(self, module: str, name: str, reason: str) -> None:
        self.module = module
        self.name = name
        self.reason = reason

    def __call__(self, *arguments: Any) -> MissingObject:  # noqa: D102
        return MissingObject(self, arguments, None)

    def __repr__(self) -> str:
        return f"<{self.module}.{self.name}: not available in this kernel ({self.reason})>"

    @staticmethod
    def __graph_reduce__(pickler: Any, missing: MissingGlobal) -> Any:
        """By name, for a receiver that has it."""
        pickler.modules.add(missing.module)
        return find_global, (missing.module, missing.name)


Recipe = tuple[Any, tuple[Any, ...], dict[str, Any] | None, str]


class MissingObject:
    """Stands for an object that cannot be rebuilt here; any use says why."""

    _recipe: Recipe
    _state: Any
    _items: tuple[list[Any], list[tuple[Any, Any]]]
    _reason: str

    def __init__(
        self, maker: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None, how: str = "", reason: str = ""
    ) -> None:
        #: ``how``: empty for a call, ``new`` for ``maker.__new__(maker, …)``
        self.__dict__["_recipe"] = (maker, arguments, keywords, how)
        self.__dict__["_reason"] = reason
        self.__dict__["_state"] = None
        self.__dict__["_items"] = ([], [])

    def __setstate__(self, state: Any) -> None:
        self.__dict__["_state"] = state

    def append(self, item: Any) -> None:
        """Called while loading."""
        self._items[0].append(item)

    def extend(self, items: Any) -> None:
        """Called while loading."""
        self._items[0].extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._items[1].append((key, value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        what, reason = _what_and_why(self)
        text = f"{what} object that exists on the cluster only has no {name} here ({reason})"
        raise MissingHereError(text, hint="use it in a %%gpu_train cell")

    def __repr__(self) -> str:
        what, reason = _what_and_why(self)
        return f"<{what} object that exists on the cluster only ({reason})>"

    @staticmethod
    def __graph_reduce__(_pickler: Any, missing: MissingObject) -> Any:
        """By recipe, for a receiver that can follow it."""
        (maker, *rest), (items, entries) = missing._recipe, missing._items
        if isinstance(getattr(maker, "__self__", None), Rebuilder):
            if maker.__name__.startswith("make_"):  # its attributes were set elsewhere
                raise pickle.PicklingError(f"a {maker.__name__[5:]} that could not be rebuilt here ({missing._reason})")
            maker = getattr(streams, maker.__name__)
        recipe = (maker, *rest)
        return follow_recipe, recipe, missing._state, iter(items) if items else None, iter(entries) if entries else None


def _what_and_why(missing: MissingObject) -> tuple[str, str]:
    """The name of the class or function that is not here, and the reason; else of what could not be called."""
    lacking = _lacking(missing)
    if lacking is not None:
        return f"{lacking.module}.{lacking.name}", lacking.reason
    maker = missing._recipe[0]
    return getattr(maker, "__qualname__", repr(maker)), missing._reason


def _lacking(thing: Any) -> MissingGlobal | None:
    if isinstance(thing, MissingGlobal):
        return thing
    if not isinstance(thing, MissingObject):
        return None
    maker, arguments, *_ = thing._recipe
    return next(filter(None, map(_lacking, (maker, *arguments))), None)


@streams.named
def find_global(module: str, name: str) -> Any:
    """The object that a :class:`MissingGlobal` stands for."""
    import importlib

    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@streams.named
def follow_recipe(maker: Any, arguments: tuple[Any, ...], keywords: dict[str, Any] | None, how: str) -> Any:
    """The object that a :class:`MissingObject` stands for."""
    if how == "new":
        return maker.__new__(maker, *arguments, **(keywords or {}))
    return maker(*arguments)


class TolerantUnpickler(SteppedUnpickler):
    """Python's own unpickler with every step that runs foreign code guarded. Slow; used after a failure only."""

    dispatch: ClassVar[dict[int, Any]] = dict(SteppedUnpickler.dispatch)

    def __init__(self, file: io.BytesIO, trust: Trust, rebuilder: Rebuilder, buffers: Sequence[Any]) -> None:
        super().__init__(file, trust, writable_buffers(buffers))
        self._rebuilder = rebuilder
        self.reasons: list[str] = []

    def find_class(self, module: str, name: str) -> Any:
        """A global of the stream, or its placeholder."""
        try:
            return self._rebuilder.bound(super().find_class(module, name))
        except Exception as error:  # noqa: BLE001 - importing runs foreign code
            return MissingGlobal(module, name, self._because(error))

    def persistent_load(self, number: int | str) -> Any:
        """An object that the stream refers to."""
        return self._rebuilder.referred(number)

    def _because(self, error: Exception) -> str:
        if isinstance(error, ModuleNotFoundError):
            reason = f"no module named {error.name}"
        elif isinstance(error, LoadError):
            reason = error.message
        else:
            reason = f"{type(error).__name__}: {error}"
        self.reasons.append(reason)
        return reason

    def _guarded(self, maker: Any, arguments: Any, keywords: Any, how: str) -> Any:
        reason = ""
        try:
            if not isinstance(maker, MissingGlobal):
                return follow_recipe(maker, arguments, keywords, how)
        except Exception as error:  # noqa: BLE001 - reducers are foreign code
            reason = self._because(error)
        return MissingObject(maker, arguments, keywords, how, reason)

    def load_reduce(self) -> None:  # noqa: D102
        arguments = self.stack.pop()
        self.stack[-1] = self._guarded(self.stack[-1], arguments, None, "")

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_newobj(self) -> None:  # noqa: D102
        arguments = self.stack.pop()
        self.stack[-1] = self._guarded(self.stack[-1], arguments, None, "new")

    dispatch[pickle.NEWOBJ[0]] = load_newobj

    def load_newobj_ex(self) -> None:  # noqa: D102
        keywords = self.stack.pop()
        arguments = self.stack.pop()
        self.stack[-1] = self._guarded(self.stack[-1], arguments, keywords, "new")

    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex

    def load_build(self) -> None:  # noqa: D102
        try:
            super().load_build()
        except Exception as error:  # noqa: BLE001 - __setstate__ is foreign code
            self._because(error)

    dispatch[pickle.BUILD[0]] = load_build
