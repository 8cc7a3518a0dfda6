"""Device choices, from the cells that a notebook has executed (or a script's text) and from what came home."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from ..analysis.device_choices import Assignment, DeviceLedger

_CONSULTING_NAMES = frozenset({"is_available", "device_count", "list_physical_devices", "list_logical_devices"})
_CONSULTED = frozenset({"cuda", "mps", "xpu", "accelerator", "config", "backends"})
_LONGEST_FUNCTION = 600


class DeviceHistory:
    """Reads the history of ``cells`` once, as it grows; ``names`` are what they have bound."""

    def __init__(self, names: dict[str, Any], cells: Callable[[], Sequence[str]]) -> None:
        self._names = names
        self._cells = cells
        self._read = 0
        self._ledger = DeviceLedger(resolve=self._resolve, consults_inside=self._consults_inside)
        #: name → (value here, value in the GPU cell)
        self._home: dict[str, tuple[Any, str]] = {}

    def up_to(self, body: str) -> DeviceLedger:
        """The ledger after all executed cells; the cell that is being executed (``body``) is not one of them."""
        cells = self._cells()
        end = len(cells)
        if end > self._read and "gpu_train" in cells[-1]:
            end -= 1
        if end < self._read:  # the history was reset
            self._read = 0
        for source in cells[self._read : end]:
            self._ledger.add(source)
        self._read = max(self._read, end)
        self._add_those_that_came_home()
        return self._ledger

    def note_returned(self, devices: dict[str, str]) -> None:
        """Names that were a device in the GPU cell and came back as "cpu"."""
        namespace = self._names
        self._home |= {name: (namespace.get(name), was) for name, was in devices.items()}

    def _add_those_that_came_home(self) -> None:
        for name, (value, was) in list(self._home.items()):
            if self._names.get(name) is not value:
                del self._home[name]
            elif name not in self._ledger.choices:
                self._ledger.choices[name] = Assignment(repr(was))

    def _resolve(self, name: str) -> str:
        value = self._names.get(name)
        if isinstance(value, types.ModuleType):
            return value.__name__
        module = getattr(value, "__module__", None)
        own = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if isinstance(module, str) and isinstance(own, str) and module != "__main__":
            return f"{module}.{own}"
        return name

    def _consults_inside(self, name: str) -> bool:
        value = self._names.get(name)
        if not isinstance(value, types.FunctionType) or value.__globals__ is not self._names:
            return False
        names = set(value.__code__.co_names)
        small = len(value.__code__.co_code) <= _LONGEST_FUNCTION
        return small and bool(names & _CONSULTING_NAMES) and bool(names & _CONSULTED)
