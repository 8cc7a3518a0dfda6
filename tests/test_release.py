"""Files that a release needs are there, and each that is missing is said in one line."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
from release_check import REPOSITORY, faults, main


def test_nothing_is_missing() -> None:
    assert faults() == []


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of the repository that is looked at."""
    root = tmp_path_factory.mktemp("release") / "repository"
    ignored = shutil.ignore_patterns("_build", "_made", "images", "__pycache__")
    for folder in ("docs", "deploy", ".github", "examples/traces", "tests/simulation/data"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=ignored)
    files = [path.relative_to(REPOSITORY) for path in REPOSITORY.iterdir() if path.is_file()]
    own = [Path("jupyter_gpu_release", name) for name in ("_version.py", "py.typed")]
    for file in [*files, *own, Path("labextension/package.json")]:
        (root / file).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / file, root / file)
    return root


@pytest.mark.parametrize(
    ("file", "pattern", "instead", "said"),
    [
        ("jupyter_gpu_release/_version.py", r'"[\d.]+"', '"1.0"', "_version.py: '1.0' is no version"),
        ("pyproject.toml", r', "version"\]', "]", "pyproject.toml: it names a version of its own"),
        ("labextension/package.json", r'"version": "[\d.]+"', '"version": "0.0.9"', "package.json: version 0.0.9"),
        (
            "deploy/helm/jupyter-gpu-release/Chart.yaml",
            r"appVersion: .*",
            "appVersion: 0.0.9",
            "appVersion 0.0.9; write",
        ),
        ("docs/kubernetes.md", r"-release:0\S+", "-release:0.0.9", "docs/kubernetes.md: an image 0.0.9"),
        ("CITATION.cff", r"\Z", "version: 0.1.0\n", "CITATION.cff: it names a version of its own"),
        ("CHANGELOG.md", r"## \[\d", "## [9", "CHANGELOG.md: the first version there is not"),
        ("CHANGELOG.md", r" - (unreleased|[\d-]+)\n", "\n", "write `## [VERSION] - YYYY-MM-DD`"),
        ("CHANGELOG.md", r"### Added", "### News", "'News' is no section"),
        ("CHANGELOG.md", r"\Z", "* " + 21 * "word " + "\n", "21 words; at most 20"),
        ("CHANGELOG.md", r"\Z", "  of two lines\n", "an entry is one line"),
        ("pyproject.toml", r'"NOTICE"', '"NOTICES"', "license-files names NOTICES, which does not exist"),
        ("NOTICE", r"adobe_nb_stats", "another", "NOTICE: examples/traces/adobe_nb_stats.json is not named"),
        ("pyproject.toml", r"ray>=2\.60", "ray>=2.61", "docs/versions.md: Ray (`[cluster]`): '2.60', but"),
        ("docs/compatibility.md", r"`track`", "`trace`", "docs/compatibility.md: track: it is either there or"),
        ("README.md", r"\Z", 151 * "\n", "lines; at most 150"),
        ("README.md", r"\Z", "It is not on PyPI yet.\n", "it says that it is on no index"),
        (
            "hatch_build.py",
            r"return _SOURCE.*",
            "return _LINK.sub(link, readme)",
            "docs/images/first-cell-dark.png: an",
        ),
        (
            ".github/workflows/ci.yaml",
            r"run: \.ci/run",
            "run: pip install x",
            "`pip install x`: call a target of the Makefile",
        ),
        (".github/workflows/ci.yaml", r"docs, ", "dox, ", "`make dox`: the Makefile has no such target"),
        (".readthedocs.yaml", r"- make docs", "- make site", "`make site`: the Makefile has no such target"),
    ],
)
def test_what_is_missing_is_said(
    original: Path, tmp_path: Path, file: str, pattern: str, instead: str, said: str
) -> None:
    root = tmp_path / "repository"
    shutil.copytree(original, root)
    changed, count = re.subn(pattern, lambda _: instead, (root / file).read_text(), count=1)
    assert count == 1
    (root / file).write_text(changed)
    assert any(said in fault for fault in faults(root)), faults(root)


@pytest.mark.parametrize("file", ["SECURITY.md", "jupyter_gpu_release/py.typed", ".github/ISSUE_TEMPLATE/bug.md"])
def test_a_missing_file_is_named(original: Path, tmp_path: Path, file: str) -> None:
    root = tmp_path / "repository"
    shutil.copytree(original, root)
    (root / file).unlink()
    assert faults(root) == [f"{file}: missing"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("", "REPOSITORY: no address; run `make release-check REPOSITORY=https://HOST/OWNER/NAME`"),
        ("http://code.example.org/gpu", "'http://code.example.org/gpu' is no public address"),
        ("https://code.example.org", "'https://code.example.org' is no public address"),
    ],
)
def test_a_release_without_a_public_address_fails(
    address: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_REPOSITORY", address)
    assert main() == 1
    assert said in capsys.readouterr().out


def test_a_release_with_an_address_lacks_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_REPOSITORY", "https://code.example.org/gpu")
    assert main() == 0
    assert "✗" not in capsys.readouterr().out


def test_an_index_is_told_repository_tracker_and_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_REPOSITORY", "https://code.example.org/gpu/")
    metadata: dict[str, Any] = {}
    runpy.run_path(str(REPOSITORY / "hatch_build.py"))["IndexMetadata"](str(REPOSITORY), {}).update(metadata)
    assert set(metadata["urls"]) == {"Repository", "Issues", "Documentation", "Changelog"}
    for address in metadata["urls"].values():
        assert address.startswith("https://code.example.org/gpu")
        place = address.partition("/blob/HEAD/")[2]
        assert (REPOSITORY / place).exists()
