"""Packages whose versions belong to the question of ``--cache``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_gpu_release.kernel.runs.cache import _packages


def test_those_of_the_inputs_and_those_that_the_cell_imports_itself() -> None:
    prepared: Any = SimpleNamespace(modules={"mine.py": b"", "ours/part.py": b""}, packages=["polars"])
    graph: Any = SimpleNamespace(modules={"numpy.linalg", "mine", "ours.part", "__main__", "jupyter_gpu_release.units"})
    assert _packages(prepared, graph) == ["numpy", "polars"]
