"""An adapter that another package brings, for a small library with labelled arrays."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.random
import pytest

from jupyter_gpu_release.adapters import registry
from jupyter_gpu_release.node.values.last_output import last_output
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.process_state import library_settings, random_states
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.serialization.sharing.in_place import update_in_place
from jupyter_gpu_release.unpickling import Trust

#: arrays with names of axes, and a handle of the file that they come from
_LIBRARY = """
import threading, random
OPTIONS = {"width": 80}
GENERATOR = random.Random(1)
class Labelled:
    __slots__ = ("values", "dims", "attrs", "_lock")
    def __init__(self, values, dims):
        self.values, self.dims, self.attrs, self._lock = values, dims, {}, threading.Lock()
    def __setattr__(self, name, value):
        if name == "values" and hasattr(self, "values"):
            raise AttributeError("values is read-only")
        object.__setattr__(self, name, value)
"""

_ADAPTER = """
import sys
from jupyter_gpu_release.adapters.adapter import Adapter, LibrarySettings

def rebuild(values, dims, attrs):
    made = sys.modules["labelled"].Labelled(values, dims)
    made.attrs = attrs
    return made

def reduce_labelled(pickler, labelled):
    pickler.remarks.append("without its file")
    return rebuild, (labelled.values, labelled.dims, labelled.attrs)

class LabelledAdapter(Adapter):
    name = "labelled"
    gives_values = True
    settings = (
        LibrarySettings("labelled", lambda module: dict(module.OPTIONS), lambda _: {"width": 80},
                        lambda module, name, value: module.OPTIONS.update({name: value})),
    )
    def reducer_for(self, kind):
        return reduce_labelled if kind.__name__ == "Labelled" else None
    def update_in_place(self, old, new):
        if old.values.shape != new.values.shape:
            return False
        old.values[...] = new.values
        old.dims, old.attrs = new.dims, new.attrs
        return True
    def nbytes_of(self, value):
        return value.values.nbytes
    def shape_of(self, value):
        return value.values.shape
    def random_state(self):
        return sys.modules["labelled"].GENERATOR.getstate()
    def set_random_state(self, state):
        sys.modules["labelled"].GENERATOR.setstate(state)
        return True

ADAPTER = LabelledAdapter()
"""


def _forget() -> None:
    registry._sources.cache_clear()
    registry.adapter_of.cache_clear()
    registry._BY_KIND.clear()


def _install(folder: Path, entry_points: str) -> None:
    facts = folder / "labelled_on_gpus-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: labelled-on-gpus\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(f"[jupyter_gpu_release.adapters]\n{entry_points}\n")
    (folder / "labelled.py").write_text(_LIBRARY)
    (folder / "labelled_on_gpus.py").write_text(_ADAPTER)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    _install(tmp_path, "labelled = labelled_on_gpus:ADAPTER")
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield
    for name in ("labelled", "labelled_on_gpus"):
        sys.modules.pop(name, None)
    _forget()


@pytest.fixture
def labelled(installed: None) -> ModuleType:
    return importlib.import_module("labelled")


def _carried(values: dict[str, Any]) -> dict[str, Any]:
    dump = codec.dump(values, NamespaceInfo({}, at_home=True))
    assert not dump.failed
    return codec.load(
        dump.stream, [bytes(each) for each in dump.buffers], NamespaceInfo({}, at_home=False), trust=Trust.OWN
    ).values


def test_nobody_loads_it_before_its_library(installed: None) -> None:
    _carried({"x": {"a": object()}})
    library_settings.capture_settings()
    assert "labelled_on_gpus" not in sys.modules
    importlib.import_module("labelled")
    library_settings.capture_settings()
    assert "labelled_on_gpus" in sys.modules


def test_objects_travel_and_share_memory_with_plain_arrays(labelled: ModuleType) -> None:
    field = labelled.Labelled(np.arange(6.0).reshape(2, 3), ("y", "x"))
    there = _carried({"field": field, "raw": field.values})
    assert (there["field"].dims, there["field"].values is there["raw"]) == (("y", "x"), True)
    dump = codec.dump({"field": field}, NamespaceInfo({}, at_home=True))
    assert dump.notes("was sent") == ["`field` was sent without its file"]


def test_what_came_back_is_put_into_the_notebooks_object(labelled: ModuleType) -> None:
    old, new = (labelled.Labelled(np.full(3, number), ("x",)) for number in (1.0, 2.0))
    memory, new.attrs = old.values, {"unit": "m"}
    assert update_in_place(old, new, set())
    assert (old.values is memory, memory.tolist(), old.attrs) == (True, [2.0] * 3, {"unit": "m"})
    assert not update_in_place(old, labelled.Labelled(np.ones(4), ("x",)), set())
    assert memory.tolist() == [2.0] * 3


def test_settings_travel_and_wait_for_the_import(installed: None) -> None:
    arrived = library_settings.ArrivedSettings()
    arrived.set_arrived({"labelled": {"width": 120}})
    assert arrived.waiting == {"labelled": {"width": 120}}
    labelled = importlib.import_module("labelled")
    assert labelled.OPTIONS == {"width": 120}
    assert library_settings.capture_settings()["labelled"] == {"width": 120}


def test_random_numbers_continue(labelled: ModuleType) -> None:
    states = random_states.capture_rng()
    drawn = labelled.GENERATOR.random()
    random_states.seed_generators({"labelled": states["labelled"]}, has_gpu=False)
    assert labelled.GENERATOR.random() == drawn


def test_a_small_one_is_a_cells_result_and_of_a_large_one_the_shape(labelled: ModuleType) -> None:
    realm = NamespaceInfo({}, at_home=False)
    assert last_output(labelled.Labelled(np.ones(3), ("x",)), {}, realm).stream
    text = last_output(labelled.Labelled(np.ones((1000, 2000)), ("y", "x")), {}, realm).text
    assert text.startswith("<labelled.Labelled of shape (1000, 2000): too large")


def test_one_that_cannot_be_loaded_is_said_and_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _install(tmp_path, "labelled = labelled_nowhere:ADAPTER")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "labelled", ModuleType("labelled"))
    _forget()
    assert "numpy" in random_states.capture_rng()
    assert _carried({"x": {"y": 1}}) == {"x": {"y": 1}}
    assert caplog.messages == [
        "the adapter of labelled (labelled_nowhere:ADAPTER) cannot be loaded: "
        "ModuleNotFoundError: No module named 'labelled_nowhere'"
    ]
    _forget()


def test_random_numbers_hold_where_those_of_another_library_cannot_be_set() -> None:
    np.random.seed(5)
    states = random_states.capture_rng() | {"not_loaded": (1, None)}
    drawn = np.random.rand()
    random_states.seed_generators(states, has_gpu=False)
    assert np.random.rand() == drawn
