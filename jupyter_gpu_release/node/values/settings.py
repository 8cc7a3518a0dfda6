"""The notebook's settings in a rank, and the warnings that it has shown: taken over before the GPUs are there."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any

from ...adapters.stdlib.environment import WorkingFolder
from ...protocol.cell import CellPayload
from ...serialization.process_state import library_settings
from ...unpickling import Trust, loads

#: of this process while it stood by, and how many modules it had imported then
_at_rest: tuple[int, library_settings.SettingsBefore] | None = None


def read_settings_ahead() -> None:
    """Read all settings before there is an order: nobody waits for it then."""
    global _at_rest
    before = library_settings.SettingsBefore({})  # which may import adapters
    _at_rest = (len(sys.modules), before)


class CellSettings:
    """Sets what the notebook has set, and knows after the cell what that one changed."""

    def __init__(self, payload: CellPayload) -> None:
        #: all that came beside the graph: random states and the like
        self.state: dict[str, Any] = loads(payload.ambient, Trust.RANK) if payload.ambient else {}
        self._arrived = library_settings.ArrivedSettings()
        self._arrived.set_arrived(self.state.get("settings", {}))
        self._is_function = payload.function
        self._before: library_settings.SettingsBefore | None = None
        self._imported = -1
        is_at_rest = not payload.terminal  # whose pandas has another width
        if is_at_rest and _at_rest is not None and not self._is_function:
            self._imported, self._before = _at_rest
            set_here = self.state.get("settings", ())
            self._before.read_again(lambda settings: settings.module in set_here or not settings.goes_along)
            self._before.waiting = self._arrived.waiting | self._arrived.late
        self.read_settings()
        #: where the cell begins; its filesystem is asked before there are GPUs to wait with
        self._folder = None if self._is_function else WorkingFolder.current()

    def read_settings(self) -> None:
        """The cell begins with settings as they are now; cheap, unless something was imported meanwhile."""
        if self._is_function or self._imported == len(sys.modules):
            return
        self._before = library_settings.SettingsBefore(self._arrived.waiting | self._arrived.late)
        self._imported = len(sys.modules)

    def set_saved(self, facts: dict[str, Any]) -> None:
        """Set what an earlier attempt of the cell had changed: changes of the cell all the same."""
        self._arrived.set_arrived(facts.get("settings", {}))

    def watch_threads(self) -> None:
        """The cell begins with as many threads, and with their environment variables, as there are now."""
        if self._before is not None:
            self._before.read_again(lambda settings: settings.follow_threads)

    def watch_environment(self) -> None:
        """The cell begins with environment variables as they are now."""
        if self._before is not None:
            self._before.read_again(lambda settings: settings.module == "os")

    def changes(self) -> tuple[library_settings.Settings, list[str]]:
        """Settings that travel home, and the names of those that cannot."""
        return self._before.changes() if self._before is not None else ({}, [])

    def new_folder(self, notes: list[str]) -> WorkingFolder | None:
        """Folder to which the cell has gone (``os.chdir``, ``%cd``), for the notebook to follow; None: it stays."""
        folder = WorkingFolder.current()
        if self._folder in (None, folder) or not folder.path:
            return None
        if folder.is_in(os.environ.get("GPU_RUN_DIR", "")):  # which is removed one day
            notes.append(folder.say_not_followed("that is the run's own"))
            return None
        return folder


#: module, text, category, line
Shown = tuple[str, str, str, int]


class OnceWarnings:
    """Leaves out warnings that an earlier GPU cell has shown, and notes those that this one shows.

    Python shows them once in a process, and so once in a notebook; its GPU cells are many processes.
    """

    def __init__(self, shown_before: Iterable[Shown]) -> None:
        self._before: set[Any] = set(map(tuple, shown_before))
        self._show = getattr(warnings, "_showwarnmsg_impl", None)
        #: for the notebook
        self.shown: list[Shown] = []

    def add_shown(self, shown: Iterable[Shown]) -> None:
        """An earlier attempt of the cell has shown these."""
        self.shown += map(tuple, shown)  # type: ignore[arg-type]
        self._before |= set(self.shown)

    def start_recording(self) -> None:
        """Begin to watch (a filter that records warnings, or the user's own way to show them, goes before)."""
        if self._show is not None:
            warnings._showwarnmsg_impl = self._on_warning  # type: ignore[attr-defined]

    def stop_recording(self) -> None:
        """Leave it as it was."""
        if self._show is not None:
            warnings._showwarnmsg_impl = self._show  # type: ignore[attr-defined]

    def _on_warning(self, message: Any) -> None:
        which = _once_only(str(message.message), message.category, message.lineno)
        if which in self._before:
            self._before.discard(which)  # it is in a registry of this process now
            return
        if which is not None:
            self.shown.append(which)
        if self._show is not None:
            self._show(message)


def _once_only(text: str, category: type[Warning], line: int) -> Shown | None:
    """Key by which it is known again; None: no registry has it, or only the notebook's, which IPython clears."""
    kind = f"{category.__module__}.{category.__qualname__}"
    if (text, category) in warnings.onceregistry:  # type: ignore[attr-defined]
        return "", text, kind, 0
    for name, module in list(sys.modules.items()):
        registry = getattr(module, "__dict__", {}).get("__warningregistry__")
        if (
            name != "__main__"
            and isinstance(registry, dict)
            and ((text, category, line) in registry or (text, category, 0) in registry)
        ):
            return name, text, kind, line
    return None
