"""The README's example, pasted cell by cell into a notebook."""

from __future__ import annotations

import pytest
from doc_blocks import blocks_in
from kernel_bed import Notebook


@pytest.mark.thorough
def test_the_example_can_be_pasted(notebook: Notebook) -> None:
    before, training, after = (one.text for one in blocks_in("../README.md", "python"))
    notebook.ok("%matplotlib inline")  # a new kernel begins so; the pool's environments do not
    notebook.ok(before)
    assert "back: history (list), model (Sequential, " in notebook.ok(training).receipt
    assert notebook.value("[len(history), history[-1] < history[0] / 4, str(next(model.parameters()).device)]") == [
        40,
        True,
        "cpu",
    ]
    assert len(notebook.ok(after).displays("image/png")) == 1
    assert notebook.value("float(right) > 0.85")
