"""One hint for whoever makes every cell a GPU cell."""

from __future__ import annotations

import msgspec

from jupyter_gpu_release.presentation.receipt import ShortCells
from jupyter_gpu_release.protocol.runs import RunView

SHORT = RunView(run="r", user="u", state="succeeded", gpus=1, granted_at=100.0, gone_at=100.05)


def test_the_twentieth_short_cell_brings_the_hint_once():
    cells = ShortCells()
    hints = [cells.hint(SHORT) for _ in range(60)]
    assert [n for n, hint in enumerate(hints, start=1) if hint] == [20]
    assert "only what trains needs %%gpu_train" in hints[19][0]


def test_long_cells_cpu_stages_and_cells_without_a_lease_do_not_count():
    cells = ShortCells()
    for view in (
        msgspec.structs.replace(SHORT, gone_at=100.2),
        msgspec.structs.replace(SHORT, gpus=0),
        msgspec.structs.replace(SHORT, granted_at=None, gone_at=None),
    ):
        assert [hint for _ in range(40) for hint in cells.hint(view)] == []
