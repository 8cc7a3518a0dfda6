from __future__ import annotations

import decimal
import importlib
import importlib.util
import logging
import os
import random
import subprocess
import sys
import warnings
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numpy as np
import numpy.random
import pytest

from jupyter_gpu_release.adapters import registry
from jupyter_gpu_release.adapters.adapter import Adapter, LibrarySettings
from jupyter_gpu_release.serialization.process_state import library_settings, random_states
from jupyter_gpu_release.serialization.process_state.local_modules import ImportWatch


@pytest.fixture(autouse=True)
def _nothing_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that other tests have brought may still wait for imports."""
    finders = [each for each in sys.meta_path if not isinstance(each, ImportWatch)]
    monkeypatch.setattr(sys, "meta_path", finders)


def test_states_of_libraries_that_are_not_here_are_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    states = random_states.capture_rng()
    assert {"random", "numpy"} <= states.keys()
    monkeypatch.setitem(sys.modules, "numpy.random", None)
    monkeypatch.delitem(sys.modules, "numpy.random")
    assert random_states.restore_rng({**states, "torch": b""} if "torch" not in sys.modules else states).keys() >= {
        "numpy"
    }


def test_capture_and_restore() -> None:
    states = random_states.capture_rng()
    first = random.random(), np.random.rand()
    assert random_states.restore_rng(states) == {}
    assert (random.random(), np.random.rand()) == first


def test_forks_without_a_state_do_not_repeat_their_siblings() -> None:
    states = random_states.capture_rng()
    drawn = []
    for _ in range(2):
        random_states.restore_rng(states)
        random_states.seed_generators({}, has_gpu=False)
        drawn.append(np.random.rand())
    assert drawn[0] != drawn[1]
    random_states.restore_rng(states)


def test_matplotlib_settings_travel() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        assert "matplotlib" not in library_settings.capture_settings()
        matplotlib.rcParams["figure.figsize"] = [3, 4]
        matplotlib.rcParams["interactive"] = True
        captured = library_settings.capture_settings()
        assert list(captured["matplotlib"]) == ["figure.figsize"]
        matplotlib.rcdefaults()
        library_settings.ArrivedSettings().set_arrived(
            {**captured, "numpy": {"no_such_option": 1}, "unknown": {"a": 1}}
        )
        assert matplotlib.rcParams["figure.figsize"] == [3.0, 4.0]


def test_colours_of_one_letter_travel_also_where_one_was_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """seaborn gives them other colours (``color_codes``)."""
    colors = pytest.importorskip("matplotlib.colors")
    with monkeypatch.context() as here:
        here.setitem(colors.colorConverter.colors, "b", (0.5, 0.0, 0.0))
        captured = library_settings.capture_settings()
    monkeypatch.setitem(colors.colorConverter.colors, "b", (0.0, 0.0, 1.0))
    assert colors.to_rgb("b") == (0.0, 0.0, 1.0)
    library_settings.ArrivedSettings().set_arrived(captured)
    assert colors.to_rgb("b") == (0.5, 0.0, 0.0)


def test_numpy_settings_travel() -> None:
    with np.printoptions(precision=2, suppress=True):
        captured = library_settings.capture_settings()
        assert captured["numpy"] == {"precision": 2, "suppress": True}
    before = np.get_printoptions()
    library_settings.ArrivedSettings().set_arrived(captured)
    assert np.get_printoptions()["precision"] == 2
    np.set_printoptions(**before)


def test_settings_of_a_library_that_is_not_loaded_wait_for_its_import(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "plotted.py").write_text("size = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    adapter = Adapter()
    adapter.settings = (LibrarySettings("plotted", vars, lambda _: {"size": 1}, setattr),)
    monkeypatch.setitem(registry._sources(), "plotted", lambda: adapter)
    finders = [each for each in sys.meta_path if not isinstance(each, ImportWatch)]
    arrived = library_settings.ArrivedSettings()
    arrived.set_arrived({"plotted": {"size": 7}})
    assert arrived.all_settings()["plotted"] == {"size": 7}
    plotted = importlib.import_module("plotted")
    assert plotted.size == 7
    assert (type(plotted.__loader__), plotted.__spec__.loader) == (SourceFileLoader, plotted.__loader__)
    assert sys.meta_path == finders
    assert arrived.waiting == {}


def test_a_filter_for_warnings_of_a_library_waits_for_it_instead_of_importing_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after `import pytorch_lightning`: each cell would import it, GPU in hand."""
    (tmp_path / "careful.py").write_text("class Careful(UserWarning):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", importlib.import_module("careful").Careful)
        captured = {"warnings": library_settings.capture_settings()["warnings"]}
    del sys.modules["careful"]
    with warnings.catch_warnings():
        arrived = library_settings.ArrivedSettings()
        arrived.set_arrived(captured)
        assert "careful" not in sys.modules
        assert arrived.all_settings()["warnings"].keys() >= captured["warnings"].keys(), "it travels on"
        before = library_settings.SettingsBefore(arrived.waiting | arrived.late)
        careful = importlib.import_module("careful")
        assert warnings.filters[0][:3] == ("ignore", None, careful.Careful)
        assert "warnings" not in before.changes()[0], "nobody has changed it"
        assert not arrived.late


def test_levels_of_a_librarys_loggers_hold_although_it_sets_them_when_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "chatty.py").write_text("import logging\nlogging.getLogger('chatty.train').setLevel(logging.INFO)\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = [each for each in sys.meta_path if not isinstance(each, ImportWatch)]
    arrived = library_settings.ArrivedSettings()
    arrived.set_arrived({"logging": {"logger chatty.train": (logging.ERROR, False, True, ())}})
    assert logging.getLogger("chatty.train").level == logging.ERROR
    before = library_settings.SettingsBefore(dict(arrived.waiting))
    importlib.import_module("chatty")
    assert logging.getLogger("chatty.train").level == logging.ERROR
    assert before.changes()[0].get("logging") is None
    assert sys.meta_path == finders


def test_what_computes_otherwise_travels(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    limit, context = sys.getrecursionlimit(), decimal.getcontext().copy()
    before = library_settings.SettingsBefore({})
    with np.errstate(), torch.enable_grad(), monkeypatch.context():
        np.seterr(divide="raise")
        torch.set_grad_enabled(False)
        sys.setrecursionlimit(limit + 77)
        decimal.getcontext().prec = 50
        decimal.getcontext().traps[decimal.Inexact] = True
        captured = library_settings.capture_settings()
        changed, left = before.changes()
    sys.setrecursionlimit(limit)
    decimal.setcontext(context)
    assert left == []
    assert captured["sys"]["recursion limit"] == changed["sys"]["recursion limit"] == limit + 77
    assert captured["numpy"] == changed["numpy"] == {"error.divide": "raise"}
    assert captured["torch"] == changed["torch"] == {"grad": False}
    with np.errstate(), torch.enable_grad(), decimal.localcontext():
        library_settings.ArrivedSettings().set_arrived(captured)
        assert (np.geterr()["divide"], torch.is_grad_enabled(), decimal.getcontext().prec) == ("raise", False, 50)
        assert decimal.getcontext().traps[decimal.Inexact]
        assert sys.getrecursionlimit() == limit + 77
    sys.setrecursionlimit(limit)


@pytest.mark.thorough
def test_jax_and_keras_settings_travel() -> None:
    code = (
        "import os; os.environ['KERAS_BACKEND'] = 'jax'\n"
        "import jax, keras, pickle, sys, numpy as np\n"
        "from jupyter_gpu_release.serialization.process_state import library_settings as settings; "
        "from jupyter_gpu_release.adapters.jax import make_jax\n"
        "wide = make_jax(np.arange(3.0))\n"
        "assert str(wide.dtype) == 'float64', wide.dtype\n"
        "assert not {'jax', 'keras'} & settings.capture_settings().keys(), settings.capture_settings()\n"
        "wanted = {'jax': {'jax_enable_x64': True}, 'keras': {'dtype_policy': 'mixed_bfloat16'}}\n"
        "settings.ArrivedSettings().set_arrived(wanted)\n"
        "assert jax.numpy.ones(1).dtype == 'float64' and keras.config.dtype_policy().name == 'mixed_bfloat16'\n"
        "found = settings.capture_settings()\n"
        "assert {library: found[library] for library in wanted} == wanted, found\n"
    )
    if importlib.util.find_spec("jax") is None or importlib.util.find_spec("keras") is None:
        pytest.skip("could not import 'jax'")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})


def test_variables_count_in_keys_of_cells_and_logging_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_MODE", "fast")
    monkeypatch.setenv("MY_TOKEN", "hf_" + "aB3" * 10)
    monkeypatch.setenv("KMP_INIT_AT_FORK", "FALSE")
    logging.getLogger("of this test").setLevel(logging.DEBUG)
    found = library_settings.capture_settings(that_count=True)
    assert found["os"].get("variable OWN_MODE") == "fast"
    assert not {"variable MY_TOKEN", "variable KMP_INIT_AT_FORK"} & found["os"].keys()
    assert "logging" not in found
    assert "os" not in library_settings.capture_settings()  # those go with the cell's options
    assert "logger of this test" in library_settings.capture_settings()["logging"]
    logging.getLogger("of this test").setLevel(logging.NOTSET)


def test_two_watches_hear_of_one_import_and_leave_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "outer_one.py").write_text("import inner_one\n")
    (tmp_path / "inner_one.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    together: list[list[str]] = []
    each: list[list[str]] = []
    wanted = {"outer_one", "inner_one"}.__contains__
    watches = [ImportWatch(wanted, together.append), ImportWatch(wanted, each.append, at_once=True)]
    for watch in watches:
        watch.start_watching()
    outer = importlib.import_module("outer_one")
    for watch in watches:
        watch.stop_watching()
    assert together == [["inner_one", "outer_one"]]
    assert each == [["inner_one"], ["outer_one"]]
    assert type(outer.__loader__) is SourceFileLoader
