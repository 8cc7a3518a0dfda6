"""The address of the documentation, as the package's metadata names it, and the pages that came with the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_gpu_release.host import documentation
from jupyter_gpu_release.host.documentation import installed_pages, web_address

_ON_FORGE = "https://forge.example/team/gpu/blob/HEAD/docs/index.md"


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installation that stands before the real one."""
    folder = tmp_path / "jupyter_gpu_release-9.dist-info"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    file = folder / "METADATA"
    file.write_text("Metadata-Version: 2.4\nName: jupyter-gpu-release\nVersion: 9\n")
    return file


def _name(file: Path, address: str) -> None:
    with file.open("a") as lines:
        lines.write(f"Project-URL: Changelog, https://forge.example/log\nProject-URL: Documentation, {address}\n")


def test_a_page_lies_beside_the_contents_that_the_metadata_names(named: Path) -> None:
    _name(named, _ON_FORGE)
    assert web_address("tutorial") == "https://forge.example/team/gpu/blob/HEAD/docs/tutorial.md"


def test_another_site_is_named_as_it_is(named: Path) -> None:
    _name(named, "https://docs.example/gpu/")
    assert web_address("tutorial") == "https://docs.example/gpu/"


def test_without_an_address_there_are_the_pages(named: Path) -> None:
    assert web_address("tutorial") == ""
    assert {"tutorial", "start/install", "use/gangs", "reference", "reference/options"} <= set(installed_pages())
    assert installed_pages()["use/gangs"].read_text().startswith("# ")
    assert installed_pages()["operate/tokens"].read_text().startswith("# ")
    assert installed_pages()["operate"].read_text().startswith("# Operate\n")
    assert "index" not in {name.rpartition("/")[2] for name in installed_pages()}


def test_the_pages_that_messages_name_are_there() -> None:
    package = Path(documentation.__file__).parents[1]
    texts = "\n".join(path.read_text() for path in package.rglob("*.py"))
    named = set(re.findall(r"jupyter gpu docs ([a-z][\w/-]*)", texts))
    assert "operate/proxy" in named
    assert named <= set(installed_pages())
