"""Cells under ``%%gpu_setup``: the ones that ranks will run."""

from __future__ import annotations

import pytest
from round_trip import make_shell

from jupyter_gpu_release.adapters.stdlib.environment import SignalHandlers
from jupyter_gpu_release.kernel import setup_cells
from jupyter_gpu_release.kernel.setup_cells import SetupCells
from jupyter_gpu_release.submission.location import CellLocation


def test_a_cell_that_is_edited_takes_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = SetupCells(make_shell(), SignalHandlers())
    for at, body in (("one", "a = 1"), ("two", "b = 1"), ("one", "a = 2"), ("", "c = 1"), ("", "c = 2"), ("", "c = 1")):
        monkeypatch.setattr(setup_cells, "locate", lambda *_, at=at, **__: CellLocation(line_offset=1, cell=at))
        cells.run(body)
    assert [cell.source.strip() for cell in cells.cells] == ["a = 2", "b = 1", "c = 1", "c = 2"]
    with pytest.raises(ZeroDivisionError):
        cells.run("1 / 0")
    assert cells.clear() == 4


def test_a_syntax_error_names_the_cell_and_its_line() -> None:
    cells = SetupCells(make_shell(), SignalHandlers())
    with pytest.raises(BaseException, match=r"never closed \(<gpu-cell-1-\w+>, line 3\)"):
        cells.run("a = 1\nb = (")
    assert cells.cells == []
