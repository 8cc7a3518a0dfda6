"""The hint for notebooks in which every cell is a GPU cell: only what trains needs one."""

from __future__ import annotations

from ...protocol.runs import RunView
from .receipt import held_s

_SHORT_S = 0.1
_MANY = 20
_HINT = (
    f"{_MANY} GPU cells of this notebook held their GPU for less than {_SHORT_S:g} s: only what trains needs "
    "%%gpu_train, everything else runs in the notebook itself"
)


class ShortCells:
    """Counts the GPU cells that hardly used the time of their GPU; the hint comes once."""

    def __init__(self) -> None:
        self._count = 0

    def hint(self, view: RunView) -> list[str]:
        """Count a finished run; returns the hint with the twentieth short one, else nothing."""
        seconds = held_s(view)
        if not view.gpus or seconds is None or seconds >= _SHORT_S:
            return []
        self._count += 1
        return [_HINT] if self._count == _MANY else []
