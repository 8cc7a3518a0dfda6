"""Plots of a sweep: Optuna's own, on the user's matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import optuna
import pytest

from jupyter_gpu_release.errors import MissingPackageError
from jupyter_gpu_release.functions.search_space import SearchSpace, Space
from jupyter_gpu_release.functions.sweep import Sweep
from jupyter_gpu_release.functions.sweep_plots import draw_plots, plots_as_png

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _without_figures() -> Iterator[None]:
    pyplot.close("all")
    yield
    pyplot.close("all")


def _study(space: Space, values: Sequence[float]) -> optuna.Study:
    study, within = optuna.create_study(), SearchSpace(space)
    for value in values:
        trial = study.ask()
        within.suggest(trial)
        study.tell(trial, value)
    return study


def _labels(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def test_history_with_the_best_so_far_and_parallel_coordinates() -> None:
    study = _study({"lr": (1e-4, 1e-1, "log"), "width": [64, None]}, [3.0, 5.0, 2.0])
    style = dict(pyplot.rcParams)
    history, coordinates = draw_plots(study, "loss")
    assert history.get_ylabel() == "loss"
    (best,) = history.get_lines()
    assert list(best.get_ydata()) == [3.0, 3.0, 2.0]
    assert _labels(coordinates) == ["loss", "lr", "width"]
    assert dict(pyplot.rcParams) == style  # Optuna changes it for good
    assert len(pyplot.get_fignums()) == 2  # for the notebook, or for `show()`


def test_pictures_leave_no_figure_open() -> None:
    own = pyplot.figure()
    pictures = plots_as_png(_study({"n": (1, 9)}, [1.0, 1.0]), "score")
    assert [picture[:4] for picture in pictures] == [b"\x89PNG"] * 2
    assert pyplot.get_fignums() == [own.number]


def test_parameters_that_only_some_trials_have_are_drawn() -> None:
    def space(trial: optuna.Trial) -> Mapping[str, Any]:
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return {"kind": kind, "size": trial.suggest_int("size", 1, 9)} if trial.number else {"kind": kind}

    _, coordinates = draw_plots(_study(space, [1.0, 2.0]), "value")
    assert _labels(coordinates) == ["value", "kind", "size"]


def test_a_list_of_settings_has_no_coordinates() -> None:
    """The study knows their numbers only."""
    assert len(draw_plots(_study([{"lr": 0.1}, {"lr": 0.2, "width": 3}], [1.0, 2.0]), "value")) == 1


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match="matplotlib is not installed here") as caught:
        Sweep(cast(Any, SimpleNamespace()), is_max=False).plot()
    assert caught.value.hint == "%pip install matplotlib"
