"""The namespace of a cell whose notebook holds names back: they are fetched when the cell asks for one.

Only such a cell has it. Its globals are a subclass of ``dict`` then, which Python honours for globals, too, but looks
into more slowly: 50 ns instead of 5 for each read of a global or a builtin.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
import types
from collections.abc import Callable, Collection, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

_NOTHING = object()
Fetch = Callable[[str], Any]


class _Beyond(dict[str, Any]):
    """Names to look for behind those of the cell: builtins, then what the notebook holds back.

    Builtins are copied, since a lookup of one must not run Python code; :func:`_builtins_with` keeps the copy true.
    """

    def __init__(self, fetch: Fetch) -> None:
        super().__init__(vars(builtins))
        self.names: dict[str, Any] = {}
        self.held: set[str] = set()
        self.unbound: set[str] = set()
        self._fetch = fetch
        self._take_turns()
        os.register_at_fork(after_in_child=self._take_turns)

    def _take_turns(self) -> None:
        """One thread asks at a time; in a forked child nobody has the lock, whoever had it."""
        self._one_at_a_time = threading.RLock()

    def __missing__(self, name: str) -> Any:
        if name not in self.held:
            raise KeyError(name)
        with self._one_at_a_time:
            if dict.__contains__(self.names, name):  # another thread's, or asked for through a copy
                return dict.__getitem__(self.names, name)
            return self._fetch(name)


class HeldNames(dict[str, Any]):
    """Use :func:`hold_back`. A name that is held back is in it; its value comes when somebody asks for it."""

    _beyond: _Beyond

    def get(self, name: str, default: Any = None) -> Any:  # noqa: D102
        return self[name] if name in self else default  # noqa: SIM401 - that is this

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self._beyond.held

    def _lacking(self) -> list[str]:
        return [name for name in self._beyond.held if not dict.__contains__(self, name)]

    def __iter__(self) -> Iterator[str]:
        return iter([*dict.__iter__(self), *self._lacking()])

    def __len__(self) -> int:
        return dict.__len__(self) + len(self._lacking())

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # noqa: D102
        return KeysView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """All names; asks for those that are not here."""
        return self.fetch_all().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """All values; asks for those that are not here."""
        return self.fetch_all().values()

    def fetch_all(self) -> dict[str, Any]:
        """Names and values, once all are here."""
        fetched = {name: self[name] for name in self._lacking()}
        return {**dict(dict.items(self)), **fetched}

    def copy(self) -> HeldNames:
        """Another that asks, too (pandas looks names up in a copy)."""
        return type(self)(dict.items(self))

    def setdefault(self, name: str, default: Any = None) -> Any:  # noqa: D102
        return self[name] if name in self else dict.setdefault(self, name, default)

    def __delitem__(self, name: str) -> None:
        if name in self._beyond.held:
            self._beyond.held.discard(name)
            self._beyond.unbound.add(name)
            dict.pop(self, name, None)
        else:
            dict.__delitem__(self, name)

    def pop(self, name: str, default: Any = _NOTHING) -> Any:  # noqa: D102
        if name in self:
            value = self[name]
            del self[name]
            return value
        if default is _NOTHING:
            raise KeyError(name)
        return default

    def hold_names(self, held: Collection[str]) -> None:
        """The cell begins: these are asked for from now on."""
        self._beyond.held |= set(held)

    def release_names(self) -> set[str]:
        """The cell is over: nothing is asked for any more. Returns the names that it has unbound."""
        self._beyond.held.clear()
        return self._beyond.unbound


def hold_back(shell: Any, fetch: Fetch) -> HeldNames:
    """Give ``shell`` a namespace with its names that can hold others back; once in a process."""
    beyond = _Beyond(fetch)
    # bound to C code: `globals()["len"]` finds the builtin, which is the price of a fast `len`
    kind = type("HeldNames", (HeldNames,), {"_beyond": beyond, "__missing__": beyond.__getitem__})
    names: HeldNames = kind(shell.user_ns)
    beyond.names = names
    builtins.__class__ = _builtins_with(beyond)
    shell.user_module, shell.user_ns = _main_of(names), names
    sys.modules["__main__"] = shell.user_module
    return names


def _builtins_with(beyond: _Beyond) -> type[types.ModuleType]:
    """Return a class for the module ``builtins``: what is set in the module is set in the copy, too."""

    class Builtins(types.ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            beyond[name] = value

        def __delattr__(self, name: str) -> None:
            super().__delattr__(name)
            beyond.pop(name, None)

    return Builtins


def _main_of(names: HeldNames) -> types.ModuleType:
    """``__main__`` with these names."""

    class Main(types.ModuleType):
        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            return names

        def __getattr__(self, name: str) -> Any:
            return names[name] if name in names else _raise(name)

        def __setattr__(self, name: str, value: Any) -> None:
            names[name] = value

        def __delattr__(self, name: str) -> None:
            if name not in names:
                _raise(name)
            del names[name]

        def __dir__(self) -> list[str]:
            return list(names)

    return Main("__main__")


def _raise(name: str) -> Any:
    raise AttributeError(f"module '__main__' has no attribute {name!r}")
