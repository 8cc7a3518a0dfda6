"""Settings of a notebook in a rank that has read its own while it stood by."""

from __future__ import annotations

import functools
import pickle
import sys
import types
from typing import Any

import pytest

from jupyter_gpu_release.adapters import registry
from jupyter_gpu_release.adapters.adapter import Adapter, LibrarySettings
from jupyter_gpu_release.node.values import settings
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.serialization.process_state import library_settings


def test_settings_that_arrive_are_no_changes_of_the_cell_and_have_nothing_else_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def reader(name: str) -> Adapter:
        def values(module: Any) -> dict[str, Any]:
            read.append(name)
            return {"size": module.size}

        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        sys.modules[name].size = 1  # type: ignore[attr-defined]
        adapter = Adapter()
        adapter.settings = (LibrarySettings(name, values, lambda _: {"size": 1}, setattr),)
        return adapter

    for name in ("set_there", "left_alone"):
        monkeypatch.setitem(registry._sources(), name, functools.partial(lambda adapter: adapter, reader(name)))
    monkeypatch.setattr(settings, "_at_rest", None)
    settings.read_settings_ahead()
    read.clear()

    arrived = settings.CellSettings(
        CellPayload(source="", ambient=pickle.dumps({"settings": {"set_there": {"size": 7}}}))
    )
    assert (sys.modules["set_there"].size, read) == (7, ["set_there"])
    assert arrived.changes()[0].keys().isdisjoint({"set_there", "left_alone"})
    sys.modules["left_alone"].size = 3  # type: ignore[attr-defined]
    assert arrived.changes()[0]["left_alone"] == {"size": 3}


def test_a_filter_of_warnings_travels_alike_in_each_cell_and_one_of_the_notebooks_own_class_as_that_is_now() -> None:
    import warnings

    with warnings.catch_warnings():
        own = type("Own", (UserWarning,), {"__module__": "__main__", "level": 1})
        warnings.simplefilter("error", UnicodeWarning)
        warnings.simplefilter("ignore", own)
        first = library_settings.capture_settings()["warnings"]
        own.level = 2  # type: ignore[attr-defined]
        second = library_settings.capture_settings()["warnings"]
    assert first.keys() == second.keys()
    changed = [name for name, packed in first.items() if packed != second[name]]
    assert changed == [name for name in first if "Own" in name] != []
