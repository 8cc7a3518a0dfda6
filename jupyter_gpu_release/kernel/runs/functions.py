"""Launching functions from a notebook: in its session, with its defaults, names and cells' texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analysis import sources as analysis_sources
from ...functions.executor import FunctionExecutor, Show, keep_quiet
from ...options.definitions import Written
from ...options.run_options import RunOptions
from ...presentation.run_output import RunOutput
from ...protocol.cell import CellSource
from ...submission.location import CellLocation, locate
from ..output.cell_output import PinnedOutput

if TYPE_CHECKING:
    from ...client.session import GatewaySession
    from ...submission.capture import CapturedInputs
    from ..context import KernelContext

#: defaults for cells that say nothing to a function
_OF_CELLS = ("async", "cache", "gather")


class NotebookExecutor(FunctionExecutor):
    """``launch`` in a kernel."""

    def __init__(self, notebook: KernelContext) -> None:
        super().__init__(notebook.names.realm, notebook.names.input_capture, notebook.names.devices)
        self._notebook = notebook

    def session(self) -> GatewaySession:  # noqa: D102
        return self._notebook.connection.open(self._notebook.settings)

    def parse_options(self, written: Written) -> RunOptions:  # noqa: D102
        return self._notebook.options(written, without=_OF_CELLS)

    def location(self) -> CellLocation:  # noqa: D102
        return locate(self._notebook.shell, "", is_cell=False)

    def source_texts(self, prepared: CapturedInputs) -> Sequence[CellSource]:  # noqa: D102
        return analysis_sources.sources_in(self._notebook.shell.compile, prepared.stream)

    def output_listener(self, *, live: bool) -> Show:
        """Below the cell that launches it."""
        return RunOutput(PinnedOutput(self._notebook.shell), folds=False).show if live else keep_quiet
