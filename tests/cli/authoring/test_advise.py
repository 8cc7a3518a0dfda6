from __future__ import annotations

import json
from pathlib import Path

import pytest
from doc_blocks import block

from jupyter_gpu_release.cli.main import main


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    sources = ["import keras\nm = keras.Sequential()", "# training\nh = m.fit(X)"]
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in sources]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_advice_and_the_copy(notebook: Path, capsys: pytest.CaptureFixture[str]):
    copy = notebook.with_name("b.ipynb")
    page = block("writing-a-cell.md", "## Advice on a notebook")
    for line in page.commands({"NOTEBOOK.ipynb": str(notebook), "COPY.ipynb": str(copy)}):
        capsys.readouterr()
        assert main(line.split()[2:]) == 0
    said = capsys.readouterr().out
    assert "h = m.fit(X); m.fit(); sent: m; back: h, m" in said
    assert "1 of 2 cells is worth a GPU cell." in said
    assert json.loads(copy.read_text())["cells"][1]["source"].startswith("%%gpu_train\n# training")
    assert main(["advise", str(notebook), "--write", str(copy)]) == 2, "never over a file that is there"
    assert main(["advise", str(copy)]) == 0
    assert "1 cell has %%gpu_train, none of the others would gain by it." in capsys.readouterr().out


def test_a_copy_is_whole_or_not_there(notebook: Path):
    """Half a character in an output is no reason to stop half-way."""
    document = json.loads(notebook.read_text())
    document["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "\ud83d"}]
    notebook.write_text(json.dumps(document))
    copy = notebook.with_name("b.ipynb")
    assert main(["advise", str(notebook), "--write", str(copy)]) == 0
    assert json.loads(copy.read_text())["cells"][0] == document["cells"][0]
    assert main(["advise", str(notebook), "--write", str(copy)]) == 2
    assert sorted(each.name for each in notebook.parent.iterdir() if "ipynb" in each.name) == ["a.ipynb", "b.ipynb"]


def test_as_a_document(notebook: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["advise", str(notebook), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [cell["advice"] for cell in document["cells"]] == ["plain", "gpu"]
    assert document["gpu_seconds"] == {"plain": None, "with_gpu_cells": None}


def test_what_is_no_notebook_is_an_error_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["advise", str(tmp_path / "none.ipynb")]) == 2
    assert "there is no such file" in capsys.readouterr().err
