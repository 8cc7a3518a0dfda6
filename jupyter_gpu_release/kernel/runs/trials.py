"""The trials of ``%%gpu_sweep``: runs of one cell, each with other values where it says ``search(…)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions.written_trial import Hole, WrittenTrial
from .functions import NotebookExecutor

if TYPE_CHECKING:
    from ...analysis.searches import SearchedCell
    from ...protocol.runs import RunView


def trial_of_cell(searched: SearchedCell) -> WrittenTrial:
    """The cell as text, with a place for each value that is searched."""
    return WrittenTrial("sweep", "the cell", searched.with_values({name: Hole(name) for name in searched.calls}))


class TrialExecutor(NotebookExecutor):
    """Trials of a cell: what one gives back are its names."""

    def value_of(self, view: RunView, name: str) -> Any:
        """The names that a trial has left, as they are there; nothing is bound."""
        loaded = self.load_values(view, name)
        return {**loaded.modules, **loaded.values}
