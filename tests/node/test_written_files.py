"""Files of a cell: which of those that are new are its own."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu_release.node.supervisor.written_files import written_files


def test_hidden_files_beside_the_notebook_are_the_cells_only_if_it_opened_them(tmp_path: Path) -> None:
    run_dir, here = tmp_path / "run", tmp_path / "here"
    for folder in (run_dir, here):
        folder.mkdir()
        for name in (".jupyter_ystore.db", ".own", "model.pt", "a.ipynb"):
            (folder / name).write_text("x")
    found = written_files([str(here / ".own")], 0.0, run_dir, here)
    assert {file.path for file in found} >= {"model.pt", ".own", "run_dir/model.pt", "run_dir/.own"}
    assert ".jupyter_ystore.db" not in {file.path for file in found}
