"""The notebook's settings in a rank: made before the GPUs are there, so that a cell does not wait for them."""

from __future__ import annotations

import pickle
import sys
from typing import Any

from ...protocol.cell import CellPayload
from ...serialization.process_state import library_settings


class CellSettings:
    """Sets what the notebook has set, and knows after the cell what that one changed."""

    def __init__(self, payload: CellPayload) -> None:
        #: all that came beside the graph: random states and the like
        self.state: dict[str, Any] = pickle.loads(payload.ambient) if payload.ambient else {}
        self._arrived = library_settings.ArrivedSettings()
        self._arrived.take(self.state.get("settings", {}))
        self._is_function = payload.function
        self._before: library_settings.SettingsBefore | None = None
        self._imported = -1
        self.look()

    def look(self) -> None:
        """The cell begins with settings as they are now; cheap, unless something was imported meanwhile."""
        if self._is_function or self._imported == len(sys.modules):
            return
        self._before = library_settings.SettingsBefore(dict(self._arrived.waiting))
        self._imported = len(sys.modules)

    def look_at_environment(self) -> None:
        """From here on environment variables are set by the cell."""
        if self._before is not None:
            self._before.look_again("os")

    def changes(self) -> tuple[library_settings.Settings, list[str]]:
        """Settings that travel home, and the names of those that cannot."""
        return self._before.changes() if self._before is not None else ({}, [])
