"""The trials of ``%%gpu_sweep``: runs of one cell, each with other values where it says ``search(…)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...functions.written_trial import Hole, WrittenTrial
from .functions import NotebookExecutor

if TYPE_CHECKING:
    from ...analysis.searches import SearchedCell
    from ...protocol.runs import RunView


@dataclass(frozen=True)
class TrialCell:
    """The cell as a sweep's driver asks for it (:class:`.Trialled`)."""

    searched: SearchedCell
    name: str = "sweep"
    title: str = "the cell"

    def statement_with(self, parameters: Mapping[str, Any]) -> str:
        """Source of one trial."""
        return self.searched.with_values(parameters)

    @property
    def written(self) -> WrittenTrial:
        """The same as text."""
        return WrittenTrial(
            self.name, self.title, self.searched.with_values({name: Hole(name) for name in self.searched.calls})
        )

    def check_parameters(self, _parameters: Mapping[str, Any]) -> None:
        """Nothing: the names that are searched are those that the cell has."""


class TrialExecutor(NotebookExecutor):
    """Trials of a cell: what one gives back are its names."""

    def value_of(self, view: RunView, name: str) -> Any:
        """The names that a trial has left, as they are there; nothing is bound."""
        loaded = self.load_values(view, name)
        return {**loaded.modules, **loaded.values}
