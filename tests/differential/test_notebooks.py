"""Whole notebooks, plain and with every cell as a GPU cell: a few in ``make test-all``, all in ``make soak``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soak import AT_FULL_SIZE

from jupyter_gpu_release.client.autostart import Ready
from tests.differential.__main__ import compare

pytestmark = pytest.mark.thorough

HERE = Path(__file__).parent / "notebooks"
EXAMPLES = Path(__file__).parents[2] / "examples"
#: short, and each of another kind
_FEW = (
    "errors_and_contexts",
    "gradient_descent",
    "inventory",
    "pandas_basics",
    "recursion_and_search",
    "library_polars",
)


def _notebooks() -> list[Path]:
    ours = sorted(HERE.glob("*.py"))
    if not AT_FULL_SIZE:
        return [path for path in ours if path.stem in _FEW]
    return [*ours, *sorted(EXAMPLES.glob("*.ipynb"))]


@pytest.mark.soak
@pytest.mark.parametrize("path", _notebooks(), ids=lambda path: path.stem)
def test_a_notebook_of_gpu_cells_is_the_plain_one(path: Path, cluster: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem.startswith("library_"):  # where it is not installed both runs fail alike
        pytest.importorskip(path.stem.removeprefix("library_"))
    home = str(Path(cluster.connection.token_file).parent)
    monkeypatch.setenv("JUPYTER_GPU_HOME", home)
    found = compare(path, {**os.environ, "JUPYTER_GPU_HOME": home})
    undocumented = [each for each in found if not each.documented]
    assert not undocumented, "\n".join(map(str, undocumented))
