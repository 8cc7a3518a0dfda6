"""The examples of this folder's subject run as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.thorough

EXAMPLES = Path(__file__).parents[2] / "examples"


def _printed(example: str, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ten_functions_on_four_gpus(environment: dict[str, str], tmp_path: Path):
    printed = _printed("launch_ten.py", environment, tmp_path)
    assert len(re.findall(r"^rate 0\.\d{4}: \d+\.\d% are right$", printed, re.MULTILINE)) == 10
    best = re.search(r"^best of 10: rate 0\.\d{4} with (\d+\.\d)%, 2410 weights$", printed, re.MULTILINE)
    assert best is not None, printed
    assert float(best[1]) > 90
    assert "its last line there: epoch 15: loss " in printed


def test_thirty_calls_in_a_few_processes(environment: dict[str, str], tmp_path: Path):
    printed = _printed("map_folds.py", environment, tmp_path)
    assert len(re.findall(r"^weight decay \S+, fold \d: \d+\.\d%$", printed, re.MULTILINE)) == 30
    assert "<map of accuracy: 30 of 30 done> in 4 processes" in printed
    best = re.search(r"^best of 6: weight decay \S+ with (\d+\.\d)%$", printed, re.MULTILINE)
    assert best is not None, printed
    assert float(best[1]) > 90


def test_three_stages(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    book = nbformat.read(EXAMPLES / "three_stages.ipynb", as_version=4)
    NotebookClient(book, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = {cell["id"]: cell.get("outputs", []) for cell in book.cells}
    assert "✓ CPU stage, no GPU taken" in str(outputs["prepare"])
    assert "became 6285" in str(outputs["prepare"])
    assert "1 simulated GPU" in str(outputs["train"])
    assert any("image/png" in output.get("data", {}) for output in outputs["draw"])
