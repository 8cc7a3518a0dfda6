"""Random cells, some of them GPU cells, leave behind what they leave when all of them are plain ones."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from optional_libraries import skip_without
from random_cells import SETUP, VOCABULARIES, random_notebook
from round_trip import Notebook, RankServer
from soak import sized

pytestmark = pytest.mark.thorough

_SEEDS = sized(4, 2000)


@pytest.mark.soak
@pytest.mark.timeout(sized(300, 7200))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_cells_leave_what_plain_ones_leave(ranks: RankServer, tmp_path: Path, vocabulary: str) -> None:
    skip_without(SETUP)
    different = list[str]()
    for seed in range(_SEEDS):
        cells = random_notebook(vocabulary, seed)
        plain, notes, there = _pictures(ranks, tmp_path, cells)
        if there != plain and not notes:  # what the receipt says is not silent
            shown = "\n".join(f"[{'GPU' if is_gpu else 'plain'}]\n{source}" for is_gpu, source in cells)
            different.append(f"seed {seed}\n{shown}\nplain:\n{plain}\n\nhere:\n{there}")
    assert not different, f"{len(different)} of {_SEEDS}:\n\n" + "\n\n".join(different[:3])


def _pictures(ranks: RankServer, folder: Path, cells: list[tuple[bool, str]]) -> tuple[str, list[str], str]:
    """The picture that plain cells leave; the receipts' notes, and the picture that the GPU cells leave."""
    space: dict[str, Any] = {"__name__": "__main__"}
    notebook, notes = Notebook(ranks, folder), list[str]()
    with contextlib.redirect_stdout(io.StringIO()):
        for source in (SETUP, *(source for _, source in cells)):
            exec(source, space)
        plain = space["picture"]()
        notebook.cell(SETUP)
        for is_gpu, source in cells:
            if is_gpu:
                notes += notebook.ok(source).notes
            else:
                notebook.cell(source)
        return plain, notes, notebook.cell("picture()")
