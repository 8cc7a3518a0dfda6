"""Says when modules have been imported for the first time in this process."""

from __future__ import annotations

import importlib.abc
import sys
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class ImportWatch(importlib.abc.MetaPathFinder):
    """``wanted``: which modules, by name. ``done`` gets their names once the outermost of such imports has ended."""

    def __init__(self, wanted: Callable[[str], bool], done: Callable[[list[str]], None]) -> None:
        self._wanted = wanted
        self._done = done
        self._depth = 0
        self._imported: list[str] = []

    def start_watching(self) -> None:
        """Look at imports from here on."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop_watching(self) -> None:
        """No more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by Python for each module that it is about to load."""
        spec = PathFinder.find_spec(fullname, path, target) if self._wanted(fullname) else None
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        spec.loader = _Watched(spec.loader, self)
        return spec

    def execute(self, module: types.ModuleType, loader: Any) -> None:
        """Load a module that is wanted."""
        self._depth += 1
        try:
            loader.exec_module(module)
            self._imported.append(module.__name__)
        finally:
            self._depth -= 1
            if not self._depth and self._imported:
                imported, self._imported = self._imported, []
                self._done(imported)


class _Watched(importlib.abc.Loader):
    """Stands before the real loader until it is asked."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        made: types.ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._watch.execute(module, self._loader)
