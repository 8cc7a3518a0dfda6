"""The example notebooks on gangs and frameworks, cell by cell; a framework that is not installed is not run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from kernel_bed import Notebook

pytestmark = pytest.mark.thorough

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    made = Notebook(tmp_path_factory.mktemp("work"), load=False)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("ddp_digits.ipynb", "torch"),
        ("parameter_server.ipynb", ""),
        ("jax_gang.ipynb", "jax"),
        ("keras_digits.ipynb", "keras"),
    ],
)
def test_the_example_runs(notebook: Notebook, name: str, needs: str) -> None:
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    notebook.ok("%reset -f")
    for cell in nbformat.read(EXAMPLES / name, as_version=4).cells:
        if cell.cell_type == "code":
            notebook.ok(cell.source, limit_s=200)  # they train, on all cores
