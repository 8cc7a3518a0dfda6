"""Packages whose versions belong to the question of ``--cache``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_gpu_release.kernel.runs.cache import _packages, cache_key
from jupyter_gpu_release.options.run_options import build_options
from jupyter_gpu_release.protocol.environments import LACKS, Plan, PlannedPackage, named_by_content
from jupyter_gpu_release.serialization.hashing.value_hash import GraphKey
from jupyter_gpu_release.submission.capture import CapturedInputs
from jupyter_gpu_release.submission.location import CellLocation
from jupyter_gpu_release.submission.request import Cell


def test_those_of_the_inputs_and_those_that_the_cell_imports_itself() -> None:
    prepared: Any = SimpleNamespace(modules={"mine.py": b"", "ours/part.py": b""}, packages=["polars"])
    graph: Any = SimpleNamespace(modules={"numpy.linalg", "mine", "ours.part", "__main__", "jupyter_gpu_release.units"})
    assert _packages(prepared, graph) == ["numpy", "polars"]


def _key(version: str, **options: str) -> str:
    """Of one cell without inputs, in an environment with this version of a package; without one in the cluster's."""
    names = SimpleNamespace(graph_key=lambda _values: GraphKey("none", {}), settings_key=list)
    notebook: Any = SimpleNamespace(shell=SimpleNamespace(transform_cell=str), names=names)
    plan = named_by_content(Plan("3.11.9", "here", [PlannedPackage("einops", version, LACKS)])) if version else None
    cell = Cell("import einops", build_options({name: [text] for name, text in options.items()}), CellLocation())
    return cache_key(notebook, cell, CapturedInputs(environment=plan)).key


def test_an_environment_is_told_by_its_packages_and_not_by_its_name() -> None:
    assert _key("0.8.1") == _key("0.8.1", environment="vision") == _key("0.8.1", environment="team", pip="einops")
    assert len({_key("0.8.1", environment="vision"), _key("0.8.2", environment="vision"), _key("")}) == 3
