from __future__ import annotations

import inspect
import linecache
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.analysis.sources import (
    OF_FILE,
    SOURCES_LIMIT_BYTES,
    gpu_cell_name,
    register_sources,
    sources_in,
    tell_inspect,
)
from jupyter_gpu_release.protocol.cell import CellSource


class Compiler:
    def __init__(self) -> None:
        self._filename_map: dict[str, int] = {}


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setattr(linecache, "cache", {})
    return Compiler()


def test_text_that_is_kept_is_found_by_inspect(compiler: Compiler):
    name = gpu_cell_name("def f():\n    return 1\n", 1, 3)
    register_sources(compiler, [CellSource(name, 3, "\ndef f():\n    return 1\n")])
    space: dict[str, Any] = {}
    exec(compile("\ndef f():\n    return 1\n", name, "exec"), space)
    linecache.checkcache()
    assert inspect.getsource(space["f"]) == "def f():\n    return 1\n"
    register_sources(compiler, [CellSource("/a/file.py", OF_FILE, "x = 1\n")])
    assert compiler._filename_map == {name: 3}, "tracebacks name a file by its path"


def test_inspect_need_not_look_for_a_cells_module(compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(inspect, "modulesbyfile", {})
    monkeypatch.chdir(tmp_path)
    name = gpu_cell_name("frame = sys._getframe()", 1, 3)
    register_sources(compiler, [CellSource(name, 3, "frame = sys._getframe()\n")])
    space: dict[str, Any] = {"sys": sys}
    exec(compile("frame = sys._getframe()", name, "exec"), space)
    assert inspect.getmodule(space["frame"]) is None
    tell_inspect(compiler)
    assert inspect.getmodule(space["frame"]) is sys.modules["__main__"]


def test_only_cells_that_the_stream_names_travel_the_newest_first(compiler: Compiler):
    names = ["/tmp/ipykernel_1/11.py", "/tmp/ipykernel_1/1111.py", "<ipython-input-3-ab>", "<gpu-cell-4-cd>"]
    register_sources(compiler, [CellSource(name, count, f"x = {count}\n") for count, name in enumerate(names)])
    stream = b"...".join(name.encode() for name in (names[0], names[3], "/tmp/ipykernel_1/999.py"))
    assert sources_in(compiler, stream) == [CellSource(names[3], 3, "x = 3\n"), CellSource(names[0], 0, "x = 0\n")]
    assert sources_in(compiler, b"") == []


def test_text_is_limited(compiler: Compiler):
    long = "x" * (SOURCES_LIMIT_BYTES // 2) + "\n"
    register_sources(compiler, [CellSource(f"<gpu-cell-{n}-x>", n, long) for n in range(3)])
    stream = b"".join(f"<gpu-cell-{n}-x>".encode() for n in range(3))
    assert [source.count for source in sources_in(compiler, stream)] == [2]


def test_a_shell_without_a_map_sends_nothing():
    assert sources_in(object(), b"<gpu-cell-1-x>") == []


def test_names_of_cells(compiler: Compiler):
    assert gpu_cell_name("a", 1, 2) == gpu_cell_name("a", 1, 2)
    assert len({gpu_cell_name("a", 1, 2), gpu_cell_name("b", 1, 2), gpu_cell_name("a", 2, 2)}) == 3
