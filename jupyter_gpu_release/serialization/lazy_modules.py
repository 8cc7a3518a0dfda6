"""Modules that are known by name and imported only when they are used: in the notebook what a GPU cell imported, in a
rank what the cell may not need.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

from ..adapters.stdlib.values import import_module


class DeferredModule(types.ModuleType):
    """Stands for a module that this process has not imported; the first use imports it and takes this one's place."""

    is_deferred = True

    def __init__(self, name: str, namespace: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__["_namespace"] = namespace
        self.__dict__["_also"] = []

    def _now(self) -> types.ModuleType:
        module = importlib.import_module(self.__name__)
        import_here(self.__dict__["_also"])
        namespace = self.__dict__["_namespace"]
        # of a namespace that holds names back only those that are here
        for name in [name for name, value in dict.items(namespace) if value is self]:
            namespace[name] = module
        return module

    def __getattr__(self, name: str) -> Any:
        if name in ("__path__", "__file__", "_namespace", "_ipython_display_", "_repr_mimebundle_"):
            raise AttributeError(name)
        return getattr(self._now(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._now(), name, value)

    def __dir__(self) -> list[str]:
        return dir(self._now())

    def __repr__(self) -> str:
        return f"<module {self.__name__!r} (imported here when used)>"

    @staticmethod
    def __graph_reduce__(pickler: Any, module: types.ModuleType) -> Any:
        """Travels by name."""
        pickler.modules.add(module.__name__)
        return import_module, (module.__name__,)


def import_submodules(names: Iterable[str], namespace: Mapping[str, Any]) -> None:
    """Have attributes of packages that these names hold here, too, as ``import package.part`` of a cell had them."""
    for name in names:
        package = namespace.get(name.partition(".")[0])
        if isinstance(package, DeferredModule):
            package.__dict__["_also"].append(name)
        elif isinstance(package, types.ModuleType):
            import_here([name])


def import_here(names: Iterable[str]) -> None:
    """Import what this process has of these modules."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def module_or_deferred(name: str, namespace: dict[str, Any]) -> types.ModuleType:
    """The module if this process has it loaded, else its stand-in."""
    return sys.modules.get(name) or DeferredModule(name, namespace)
