"""The differential harness finds what differs, and nothing else."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.differential.comparing import Difference, differences, documented_sentences
from tests.differential.playing import CellPlay, Play, move_printed_traceback
from tests.differential.reading import on_a_gpu, percent_cells
from tests.differential.values import Walk, write_content


def _play(**names: str) -> Play:
    cell = CellPlay("x", shown=[("stdout", "took 12.5 ms\n"), ("display", {"text/plain": "3", "image/png": "p"})])
    return Play([cell], {name: [(name, text)] for name, text in names.items()}, {"a.txt": "1"})


def _found(plain: Play, gpu: Play, again: Play | None = None, *documented: str) -> list[Difference]:
    patterns = [re.compile(text) for text in documented]
    return differences(plain, gpu, lambda: again or copy.deepcopy(plain), patterns)


def test_equal_runs_have_no_difference_and_no_second_look() -> None:
    assert differences(_play(x="1"), _play(x="1"), lambda: pytest.fail("played again"), []) == []


def test_outcome_text_displays_names_and_files_are_compared() -> None:
    gpu = _play(x="2")
    gpu.cells[0].status, gpu.cells[0].ename, gpu.cells[0].evalue = "error", "KeyError", "'k'"
    gpu.cells[0].shown = [("display", {"text/plain": "4", "image/png": "p"}), ("stderr", "hm")]
    gpu.files = {}
    found = _found(_play(x="1", gone="1"), gpu)
    where = [(each.where, each.what) for each in found]
    assert where == [
        ("cell 1", "outcome"),
        ("cell 1", "stdout"),
        ("cell 1", "stderr"),
        ("cell 1", "order of output"),
        ("cell 1", "display 1, text/plain"),
        ("name x", "value"),
        ("name gone", "is there"),
        ("file a.txt", "content"),
    ]
    assert "KeyError: 'k'" in str(found[0])


def test_what_two_plain_runs_differ_in_is_compared_without_its_figures() -> None:
    again, slower, other = _play(), _play(), _play()
    for play, text in ((again, "took 11 µs\n"), (slower, "took 1.25 s\n"), (other, "failed after 2 s\n")):
        play.cells[0].shown[0] = ("stdout", text)
    assert _found(_play(), slower, again) == []
    assert [each.what for each in _found(_play(), other, again)] == ["stdout"]
    assert [each.what for each in _found(_play(), slower)] == ["stdout"]


def test_a_documented_difference_needs_its_sentence_in_the_receipt(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# x\n\n## Known differences\n\n| difference | what the receipt says | test |\n|---|---|---|\n"
        '| detached | "… comes back detached" | t |\n\n## Next\n| a | "anything … at all" | c |\n'
    )
    (pattern,) = documented_sentences(page)
    gpu = _play(loss="2")
    gpu.cells[0].said = ["✓ 1 GPU\n  · loss comes back detached"]
    assert [each.documented for each in _found(_play(loss="1"), gpu, None, pattern.pattern)] == [
        "· loss comes back detached"
    ]
    gpu.cells[0].said = ["✓ 1 GPU\n  · other comes back detached"]
    assert [each.documented for each in _found(_play(loss="1"), gpu, None, pattern.pattern)] == [""]


def test_scripts_are_read_cell_by_cell() -> None:
    text = (
        '"""Text."""\n\n# %% [markdown]\n# # Title\n\n# %%\nx = 1\n\n# %% second\n# %matplotlib inline\n'
        "# a remark\n# %%\n# %%time\nx\n"
    )
    assert percent_cells(text) == ["x = 1", "%matplotlib inline\n# a remark", "%%time\nx"]
    assert on_a_gpu("%%time\nx") == "%%gpu_train\n%%time\nx"


def _content(path: Path) -> str:
    write_content(SimpleNamespace(user_ns={}), str(path), str(path.with_suffix(".json")))
    return path.with_suffix(".json").read_text()


def test_pickles_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    word = "".join(["wo", "rd"])
    one, other, third, fourth = (tmp_path / f"{name}.pkl" for name in ("one", "other", "third", "fourth"))
    one.write_bytes(pickle.dumps([word, word]))
    other.write_bytes(pickle.dumps([word, "".join(["wo", "rd"])]))
    third.write_bytes(pickle.dumps([word, "world"]))
    fourth.write_bytes(b"no pickle")
    assert one.read_bytes() != other.read_bytes()
    assert _content(one) == _content(other) != _content(third)
    assert "no pickle" in _content(fourth)
    torch = pytest.importorskip("torch")
    for value in (1, 2):
        torch.save({"w": torch.full((2,), value)}, tmp_path / f"{value}.pt")
    assert "torch.Tensor" in _content(tmp_path / "1.pt")
    assert _content(tmp_path / "1.pt") != _content(tmp_path / "2.pt")


def test_an_exception_group_is_printed_in_a_plain_cell_and_raised_in_a_gpu_cell() -> None:
    def failed(*members: Exception) -> str:
        try:
            raise ExceptionGroup("many", members)
        except ExceptionGroup:
            return traceback.format_exc()

    def group(printed: str, raised: str) -> Play:
        cell = CellPlay("x", "error", "ExceptionGroup", "many", traceback=raised)
        cell.shown = [("stderr", f"before\n{printed}")] if printed else [("stderr", "before\n")]
        if printed:
            move_printed_traceback(cell)
        return Play([cell], {}, {})

    plain = group(failed(ValueError("a"), KeyError("b")), "")
    assert plain.cells[0].text("stderr") == "before\n"
    assert _found(plain, group("", failed(ValueError("a"), KeyError("b")))) == []
    assert [each.what for each in _found(plain, group("", failed(ValueError("a"), KeyError("c"))))] == [
        "exception group"
    ]


class _Point:
    def __init__(self, x: Any) -> None:
        self.x = x


def _rows(**names: Any) -> dict[str, list[tuple[str, str]]]:
    walk = Walk(names)
    return {name: walk.rows(name, value) for name, value in names.items()}


def _pair(*, alias: bool) -> dict[str, Any]:
    one = [1]
    return {"a": one, "b": one if alias else [1]}


def _memory(*, shared: bool) -> dict[str, Any]:
    one = np.arange(6)
    return {"a": one, "b": one.reshape(2, 3) if shared else one.reshape(2, 3).copy()}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_pair(alias=True), _pair(alias=False)),
        (_memory(shared=True), _memory(shared=False)),
        ({"x": 1}, {"x": 1.0}),
        ({"x": np.float32(1)}, {"x": np.float64(1)}),
        ({"x": {"a": 1, "b": 2}}, {"x": {"b": 2, "a": 1}}),
        ({"x": _Point([1])}, {"x": _Point([2])}),
        ({"x": SimpleNamespace(y=np.array([1.0]))}, {"x": SimpleNamespace(y=np.array([1.5]))}),
        ({"x": ValueError("a")}, {"x": ValueError("b")}),
    ],
)
def test_values_and_who_they_are_show_in_their_rows(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert _rows(**one) != _rows(**other)
    assert _rows(**one) == _rows(**copy.deepcopy(one)) or "b" in one


def test_an_exhausted_slice_is_the_same_after_its_pickle() -> None:
    one = itertools.islice(iter(range(10)), 3)
    assert _rows(x=one) == _rows(x=copy.copy(one)) != _rows(x=itertools.islice(iter(range(10)), 2))
    list(one)
    assert _rows(x=one) == _rows(x=pickle.loads(pickle.dumps(one)))


@pytest.mark.thorough
def test_the_command_fails_over_an_undocumented_difference_and_prints_it(tmp_path: Path) -> None:
    book = tmp_path / "book.py"
    book.write_text("# %%\nimport os\nin_a_run = 'GPU_RUN_DIR' in os.environ\n# %%\nfine = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.differential", str(book)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JUPYTER_GPU_PRELOAD": "json"},  # its cluster would load torch and others for it: 5 s of CPU
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 differences, 1 undocumented" in done.stdout
    assert "name in_a_run: value\n    plain: in_a_run: bool False\n    gpu:   in_a_run: bool True" in done.stdout
