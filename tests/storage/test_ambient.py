from __future__ import annotations

import importlib
import random
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy as np
import numpy.random
import pytest

from jupyter_gpu_release.storage import ambient, settings


def test_states_of_libraries_that_are_not_here_are_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ambient.capture_rng()
    assert {"random", "numpy"} <= states.keys()
    monkeypatch.setitem(sys.modules, "numpy.random", None)
    monkeypatch.delitem(sys.modules, "numpy.random")
    assert ambient.restore_rng({**states, "torch": b""} if "torch" not in sys.modules else states).keys() >= {"numpy"}


def test_capture_and_restore() -> None:
    states = ambient.capture_rng()
    first = random.random(), np.random.rand()
    assert ambient.restore_rng(states) == {}
    assert (random.random(), np.random.rand()) == first


def test_forks_without_a_state_do_not_repeat_their_siblings() -> None:
    states = ambient.capture_rng()
    drawn = []
    for _ in range(2):
        ambient.restore_rng(states)
        ambient.seed_fresh({})
        drawn.append(np.random.rand())
    assert drawn[0] != drawn[1]
    ambient.restore_rng(states)


def test_matplotlib_settings_travel() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        assert "matplotlib" not in settings.capture_settings()
        matplotlib.rcParams["figure.figsize"] = [3, 4]
        matplotlib.rcParams["interactive"] = True
        captured = settings.capture_settings()
        assert list(captured["matplotlib"]) == ["figure.figsize"]
        matplotlib.rcdefaults()
        settings.ArrivedSettings().take({**captured, "numpy": {"no_such_option": 1}, "unknown": {"a": 1}})
        assert matplotlib.rcParams["figure.figsize"] == [3.0, 4.0]


def test_numpy_settings_travel() -> None:
    with np.printoptions(precision=2, suppress=True):
        captured = settings.capture_settings()
        assert captured["numpy"] == {"precision": 2, "suppress": True}
    before = np.get_printoptions()
    settings.ArrivedSettings().take(captured)
    assert np.get_printoptions()["precision"] == 2
    np.set_printoptions(**before)


def test_settings_of_a_library_that_is_not_loaded_wait_for_its_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "plotted.py").write_text("size = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    library = settings.Library("plotted", vars, lambda _: {"size": 1}, setattr)
    monkeypatch.setitem(settings._BY_MODULE, "plotted", library)
    finders = list(sys.meta_path)
    arrived = settings.ArrivedSettings()
    arrived.take({"plotted": {"size": 7}})
    assert arrived.all()["plotted"] == {"size": 7}
    plotted = importlib.import_module("plotted")
    assert plotted.size == 7
    assert (type(plotted.__loader__), plotted.__spec__.loader) == (SourceFileLoader, plotted.__loader__)
    assert sys.meta_path == finders
    assert arrived.waiting == {}
