"""The tutorial, followed to the letter: the notebook that `make lab` opens, then the cells that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from doc_blocks import blocks_in
from kernel_bed import Notebook

pytestmark = pytest.mark.thorough

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.timeout(600)  # it trains on all cores
def test_each_cell_of_the_tutorial_does_what_it_says(notebook: Notebook) -> None:
    tutorial = (REPOSITORY / "docs" / "tutorial.md").read_text()
    first, second, *_ = (
        cell.source
        for cell in nbformat.read(REPOSITORY / "examples" / "digits.ipynb", as_version=4).cells
        if cell.cell_type == "code"
    )
    shown = sorted([*blocks_in("tutorial.md", ""), *blocks_in("tutorial.md", "python")], key=lambda one: one.line)
    lab, magic, _receipt, back, status, background, broken, stop = (one.text.strip() for one in shown)
    assert (lab, stop) == ("make lab", "!jupyter gpu stop")  # tests/ui/test_make_lab.py does both
    assert second.startswith(magic)
    notebook.ok(first)
    trained = notebook.ok(second)
    (example,) = re.findall(r"^✓.*back: (.*) · run", tutorial, re.MULTILINE)
    assert [re.sub(r" \(.*", "", name) for name in example.split("), ")] == re.findall(
        r"(\w+) \(\w+(?:, [^)]*)?\)", trained.receipt.partition("back: ")[2]
    )
    assert len(notebook.ok(back).displays()) == 1
    assert "held" in "".join(notebook.ok(status).displays())
    notebook.ok(background)
    notebook.ok("%gpu_wait")
    epochs = [int(found) for found in re.findall(r"epochs=(\d+)", second + background)]
    assert notebook.value("len(history)") == sum(epochs)
    failed = notebook.run(broken)
    assert (failed.reply["ename"], notebook.value("kept[-1]")) == ("IndexError", 81)
