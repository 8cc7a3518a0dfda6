"""The table of cells as one long notebook, plain and with every cell as a GPU cell."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from soak import AT_FULL_SIZE

from jupyter_gpu_release.client.autostart import Ready
from tests.cells.table import CELLS
from tests.differential.__main__ import compare_cells

pytestmark = [pytest.mark.thorough, pytest.mark.soak, pytest.mark.timeout(900)]

#: ``make test-all`` plays every eighth, and the same ones when there are more
_EVERY = 1 if AT_FULL_SIZE else 8


def _sources() -> Iterator[str]:
    for cell in (cell for name, cell in CELLS.items() if zlib.crc32(name.encode()) % _EVERY == 0):
        yield from filter(None, (cell.setup, cell.body, cell.asked, cell.end))


def test_the_table_is_the_same_as_a_notebook_of_gpu_cells(
    cluster: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(Path(cluster.connection.token_file).parent)
    monkeypatch.setenv("JUPYTER_GPU_HOME", home)
    found = compare_cells(list(_sources()), tmp_path, {**os.environ, "JUPYTER_GPU_HOME": home})
    undocumented = [each for each in found if not each.documented]
    assert not undocumented, "\n".join(map(str, undocumented))
