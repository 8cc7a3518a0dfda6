"""Packages of a node as the cache sees them: versions, and the files of what is edited in place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpu_release.node.agent import packages as packages_module
from jupyter_gpu_release.node.agent.packages import Packages


def _install(site: Path, module: str, name: str, url: dict[str, object] | None) -> Path:
    """A distribution ``name`` 1.0 with one package; returns its file."""
    facts = site / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "top_level.txt").write_text(module)
    if url is not None:
        (facts / "direct_url.json").write_text(json.dumps({"url": f"file://{site}", "dir_info": url}))
    source = site / module / "__init__.py"
    source.parent.mkdir()
    source.write_text("rate = 1")
    return source


@pytest.mark.parametrize(
    ("module", "name"), [("edited", "edited"), ("edited_tools", "edited_tools"), ("edited", "vision")]
)
def test_what_is_edited_in_place_is_known_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = _install(tmp_path, module, name, {"editable": True})
    packages = Packages()
    before = packages.environment([module])
    assert before.unknown == []
    assert packages.environment([module]) == before
    source.write_text("rate = 2")
    assert packages.environment([module]).packages != before.packages


@pytest.mark.parametrize("url", [None, {}, {"editable": False}])
def test_what_is_installed_is_known_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: dict[str, object] | None
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = _install(tmp_path, "plain_tools", "plain_tools", url)
    packages = Packages()
    before = packages.environment(["plain_tools"])
    assert before.packages == {"plain-tools": "1.0"}
    source.write_text("rate = 2")
    assert packages.environment(["plain_tools"]) == before


def test_what_is_installed_anew_is_known_by_its_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(packages_module, "folders_stamp", lambda: tmp_path.stat().st_mtime_ns)
    _install(tmp_path, "plain_tools", "plain_tools", None)
    packages = Packages()
    assert packages.environment(["plain_tools"]).packages == {"plain-tools": "1.0"}
    old = tmp_path / "plain_tools-1.0.dist-info"
    metadata = (old / "METADATA").read_text().replace("1.0", "2.0")
    (old / "METADATA").write_text(metadata)
    old.rename(tmp_path / "plain_tools-2.0.dist-info")
    assert packages.environment(["plain_tools"]).packages == {"plain-tools": "2.0"}
