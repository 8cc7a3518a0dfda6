"""The table of cells, in a kernel that has a cluster: both show the same and end alike.

``make test-all`` plays half of those that need a front end; others are tried in one process, every fourth as part of
a notebook (``tests/differential/test_cells.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from as_plain import run_both, shown
from kernel_bed import Notebook, Shown
from soak import cases

from tests.cells.table import CELLS, Cell

pytestmark = pytest.mark.thorough

_GPU = "%%gpu_train --gpus 0\n"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """For cells that leave nothing behind but names."""
    started = Notebook(tmp_path_factory.mktemp("cells"))
    yield started
    started.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Notebook]:
    started = Notebook(tmp_path)
    yield started
    started.close()


_HERE = [name for name, cell in CELLS.items() if cell.is_of_kernel and not cell.is_setting]
_ANYWHERE = [name for name, cell in CELLS.items() if not cell.is_of_kernel]
_SETTINGS = [name for name, cell in CELLS.items() if cell.is_setting]


@pytest.mark.parametrize("name", cases(_HERE[::2], [*_HERE[1::2], *_ANYWHERE]))
def test_a_gpu_cell_shows_and_does_what_a_plain_one_does(notebook: Notebook, name: str) -> None:
    cell = CELLS[name]
    plain, gpu = (_after_setup(notebook, cell, first) for first in ("", _GPU))
    assert gpu[0].status == plain[0].status, gpu[0].traceback
    if plain[0].status == "error":  # a failed value's other representations come before its error
        assert sorted(map(str, shown(gpu[0]))) == sorted(map(str, shown(plain[0])))
    else:
        assert [shown(each) for each in gpu] == [shown(each) for each in plain]


def _after_setup(notebook: Notebook, cell: Cell, first: str) -> list[Shown]:
    notebook.ok("%reset -f")
    notebook.ok(cell.setup)
    return [notebook.run(first + cell.body), notebook.run(cell.asked)]


@pytest.mark.parametrize("first", ["", _GPU], ids=["plain", "GPU"])
@pytest.mark.parametrize("name", cases(_SETTINGS[::2], _SETTINGS[1::2]))
def test_settings_hold_in_plain_and_gpu_cells_wherever_they_were_made(fresh: Notebook, name: str, first: str) -> None:
    cell = CELLS[name]
    fresh.ok(first + cell.setup)
    plain, gpu = run_both(fresh, cell.body)
    assert gpu.status == plain.status, gpu.traceback
    assert shown(gpu) == shown(plain) != []
