"""Records what a rank had to import itself, so that the next cell of its user finds it imported."""

from __future__ import annotations

import os
import sys
import time
import types
from typing import Any

from ...protocol.runs import ImportedModule
from ...serialization.process_state.local_modules import ImportWatch
from ...units import round_number
from ..installed_packages import package_folders

#: more than a cell can sensibly need
_MOST = 200
#: they import for others
_BETWEEN = frozenset({*sys.stdlib_module_names, __package__.partition(".")[0]})


class ImportLog(ImportWatch):
    """Modules of installed libraries, but for those that such a module imports in turn while it is imported.

    What a notebook's own module imports counts: its libraries can be imported ahead, it cannot. A library that imports
    something later, when it is used, stands before that: it may have set up what that reads (jax does so for jaxlib).
    """

    def __init__(self) -> None:
        super().__init__(lambda _name: not (self._under_way and self._under_way[-1]), lambda _names: None)
        #: of the modules whose imports are under way: whether they are installed
        self._under_way: list[bool] = []
        self._folders = tuple(folder + os.sep for folder in package_folders())
        self.has_begun = False
        self.imported: list[ImportedModule] = []

    def execute(self, module: types.ModuleType, loader: Any) -> None:
        """Import a module, and note it."""
        is_installed = self._is_installed(module)
        if is_installed:
            self._note_importer()
        self._under_way.append(is_installed)
        began = time.perf_counter()
        try:
            super().execute(module, loader)
        finally:
            self._under_way.pop()
            if is_installed:
                self._note(module.__name__, time.perf_counter() - began)

    def _note(self, name: str, seconds: float) -> None:
        if len(self.imported) < _MOST:
            self.imported.append(ImportedModule(name, round_number(seconds, 6), not self.has_begun))

    def _note_importer(self) -> None:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and _module_of(frame).partition(".")[0] in _BETWEEN:
            frame = frame.f_back
        importer = sys.modules.get(_module_of(frame)) if frame is not None else None
        if importer is not None and self._is_installed(importer):
            self._note(importer.__name__, 0.0)

    def _is_installed(self, module: types.ModuleType) -> bool:
        spec = getattr(module, "__spec__", None)
        places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec is not None else []
        return any(place.startswith(self._folders) for place in places)


def _module_of(frame: types.FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
