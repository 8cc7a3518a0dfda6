"""Figures that pyplot has open."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.adapters.matplotlib import ADAPTER

pytest.importorskip("matplotlib")


def test_open_figures_are_said_once() -> None:
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    pyplot.close("all")
    assert list(ADAPTER.what_stays()) == []
    try:
        pyplot.figure(7)
        (sentence,) = ADAPTER.what_stays()
        pyplot.figure(8)
        assert [*ADAPTER.what_stays()] == [sentence]  # who has said it says it no more
    finally:
        pyplot.close("all")
    assert sentence.startswith("figures that are open here are not open in GPU cells")
