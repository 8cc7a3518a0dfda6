"""Open figures of pyplot: they belong to the cell, and go on with it."""

from __future__ import annotations

import sys
from typing import Any


def capture() -> list[tuple[Any, Any]]:
    """Number and figure of each, the current one last."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return [] if helpers is None else [(number, each.canvas.figure) for number, each in helpers.Gcf.figs.items()]


def restore(figures: list[tuple[Any, Any]]) -> None:
    """Let pyplot know them."""
    if not figures:
        return
    from matplotlib import pyplot
    from matplotlib._pylab_helpers import Gcf

    for found in list(Gcf.figs):  # a figure that is read may have opened itself, under another number
        Gcf.figs.pop(found)
    for number, figure in figures:
        Gcf._set_new_active_manager(pyplot._get_backend_mod().new_figure_manager_given_figure(number, figure))
