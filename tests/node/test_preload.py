"""What the fork server imports ahead: what is installed and of use, and what fails is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpu_release.node import preload


def test_what_is_missing_is_left_out_and_what_is_broken_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(preload._NEEDS) <= set(preload.DEFAULT)
    (tmp_path / "broken_here.py").write_text("import not_installed_here")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(preload.import_libraries(["not_installed_here.part", "broken_here"])) == ["broken_here"]
    monkeypatch.setitem(preload._NEEDS, "broken_here", "not_installed_here")
    assert preload.import_libraries(["broken_here"]) == {}
