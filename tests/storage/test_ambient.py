from __future__ import annotations

import random
import sys

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
        assert captured["matplotlib"] == {"figure.figsize": [3.0, 4.0]}
        matplotlib.rcdefaults()
        settings.apply_settings({**captured, "numpy": {"no_such_option": 1}, "unknown": {"a": 1}})
        assert matplotlib.rcParams["figure.figsize"] == [3.0, 4.0]


def test_numpy_settings_travel() -> None:
    with np.printoptions(precision=2, suppress=True):
        captured = settings.capture_settings()
        assert captured["numpy"] == {"precision": 2, "suppress": True}
    before = np.get_printoptions()
    settings.apply_settings(captured)
    assert np.get_printoptions()["precision"] == 2
    np.set_printoptions(**before)
