"""Plots of a sweep's study, drawn by Optuna with the user's own matplotlib."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna import Study

_DOTS_PER_INCH = 100


def draw_plots(study: Study, metric: str) -> list[Any]:
    """The axes of its history with the best so far, and of its parallel coordinates; matplotlib's style stays.

    Of a list of settings a study knows only the numbers, so there are no coordinates.
    """
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as plots

    from .search_space import SETTING

    _choose_backend()
    with pyplot.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how Optuna draws: the user cannot mend it
        drawn = [plots.plot_optimization_history(study, target_name=metric)]
        if not any(trial.params.keys() == {SETTING} for trial in study.get_trials(deepcopy=False)):
            drawn.append(plots.plot_parallel_coordinate(study, target_name=metric))
    return drawn


def plots_as_png(study: Study, metric: str) -> list[bytes]:
    """The same as pictures; no figure stays open, and none is shown by matplotlib itself."""
    from matplotlib import pyplot

    _choose_backend()
    with pyplot.ioff():
        return [_picture(axes.figure) for axes in draw_plots(study, metric)]


def _choose_backend() -> None:
    """Have a notebook's backend switch its settings on now: in a context they would be switched off with it."""
    from matplotlib import pyplot

    pyplot.draw_if_interactive()


def _picture(figure: Any) -> bytes:
    from matplotlib import pyplot

    picture = BytesIO()
    try:
        figure.savefig(picture, format="png", bbox_inches="tight", dpi=_DOTS_PER_INCH)
    finally:
        pyplot.close(figure)
    return picture.getvalue()
