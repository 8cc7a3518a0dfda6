"""Launching functions from a notebook: in its session, with its defaults, names and cells' texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core import sources
from ..core.choices import RunOptions
from ..core.messages import CellSource, Event
from ..core.options import Written
from ..functions.hearing import Show
from ..functions.launcher import Launcher
from ..sending.place import Place, locate
from .cell_output import PinnedOutput
from .relay import Relay

if TYPE_CHECKING:
    from ..client.session import GatewaySession
    from ..sending.collecting import Prepared
    from .notebook import Notebook

#: defaults for cells that say nothing to a function
_OF_CELLS = ("async", "cache", "gather")


class NotebookLauncher(Launcher):
    """``launch`` in a kernel."""

    def __init__(self, notebook: Notebook) -> None:
        super().__init__(notebook.names.realm, notebook.names.outward, notebook.names.devices)
        self._notebook = notebook

    def session(self) -> GatewaySession:  # noqa: D102
        return self._notebook.link.open(self._notebook.settings)

    def options(self, written: Written) -> RunOptions:  # noqa: D102
        return self._notebook.options(written, without=_OF_CELLS)

    def place(self) -> Place:  # noqa: D102
        return locate(self._notebook.shell, "", is_cell=False)

    def sources(self, prepared: Prepared) -> Sequence[CellSource]:  # noqa: D102
        return sources.sources_in(self._notebook.shell.compile, prepared.stream)

    def shower(self, *, live: bool) -> Show:
        """Below the cell that launches it."""
        return Relay(PinnedOutput(self._notebook.shell), folds=False).show if live else _keep_quiet


def _keep_quiet(_events: Sequence[Event]) -> None:
    """It is recorded; ``logs()`` and ``%gpu_logs`` have it."""
