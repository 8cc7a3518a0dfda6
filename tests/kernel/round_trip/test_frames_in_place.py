"""Frames that a cell changes in place: what the table of cells (``tests/cells``) cannot say."""

from __future__ import annotations

from round_trip import Notebook

from tests.cells.frames import FRAME, IMPORTS


def test_an_attribute_that_cannot_travel_stays_where_it_is(nb: Notebook) -> None:
    nb.cell(IMPORTS + FRAME + "import threading; df.design = threading.Lock(); df.name = 'x'")
    nb.ok("df['b'] = 0.")
    assert nb.cell("df.b.tolist(), df.name, hasattr(df, 'design')") == ([0.0] * 3, "x", True)
