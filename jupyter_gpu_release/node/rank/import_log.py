"""Records what a rank had to import itself, so that the next cell of its user finds it imported."""

from __future__ import annotations

import os
import time
import types
from typing import Any

from ...protocol.runs import ImportedModule
from ...serialization.process_state.local_modules import ImportWatch
from ..installed_packages import package_folders

#: more than a cell can sensibly need
_MOST = 200


class ImportLog(ImportWatch):
    """Modules of installed libraries, but for those that such a module imports in turn.

    What a notebook's own module imports counts: its libraries can be imported ahead, it cannot.
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
        self._under_way.append(is_installed)
        began = time.perf_counter()
        try:
            super().execute(module, loader)
        finally:
            self._under_way.pop()
            if is_installed and len(self.imported) < _MOST:
                seconds = round(time.perf_counter() - began, 6)
                self.imported.append(ImportedModule(module.__name__, seconds, not self.has_begun))

    def _is_installed(self, module: types.ModuleType) -> bool:
        spec = module.__spec__
        places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec is not None else []
        return any(place.startswith(self._folders) for place in places)
