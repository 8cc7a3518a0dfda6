"""The table of cells, in this process and forks of a clean one."""

from __future__ import annotations

import pytest
from round_trip import Notebook
from soak import thorough

from tests.cells.table import CELLS

_HERE = [name for name, cell in CELLS.items() if not cell.is_of_kernel]


@pytest.mark.parametrize("is_gpu_setup", [False, *thorough(True)], ids=["plain", "GPU"])
@pytest.mark.parametrize("name", _HERE)
def test_after_a_gpu_cell_all_is_as_after_a_plain_one(nb: Notebook, name: str, is_gpu_setup: bool) -> None:
    nb.expect_as_plain(CELLS[name], is_gpu_setup=is_gpu_setup)
