"""A rank's module path is the notebook's."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_bed import Node


@pytest.mark.parametrize("is_seen", [True, False], ids=["the node sees the folder", "it does not"])
@pytest.mark.parametrize("order", [["libs", ""], ["", "libs"], ["libs"]], ids=repr)
def test_folders_on_the_path_come_in_the_notebooks_order(
    node: Node, tmp_path: Path, order: list[str], is_seen: bool
) -> None:
    for name in ("book", "libs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shadow_of_path.py").write_text(f"V = {name!r}")
    run = node.run(
        "import shadow_of_path\nprint(shadow_of_path.V)",
        workdir=str(tmp_path / ("book" if is_seen else "nowhere")),
        modules={"shadow_of_path.py": b"V = 'book'"},
        sys_path=[str(tmp_path / name) if name else "" for name in order],
    )
    assert run.outcome.error is None
    assert run.text().split() == ["libs" if order == ["libs", ""] else "book"]


@pytest.mark.parametrize(("behind", "is_own"), [(0, True), (1, False)], ids=["before", "behind"])
def test_an_added_folder_is_where_it_is_in_the_notebook_among_the_installed_packages(
    node: Node, tmp_path: Path, behind: int, is_own: bool
) -> None:
    (tmp_path / "certifi.py").write_text("")
    run = node.run(
        "import importlib.util\nprint(importlib.util.find_spec('certifi').origin)",
        sys_path=["", str(tmp_path)],
        sys_path_behind=behind,
    )
    assert run.text().startswith(str(tmp_path)) is is_own
