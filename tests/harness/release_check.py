"""`make release-check`, its first part: the files of the repository, looked at for what a release still lacks.

Each check says what it looked at. A fault is one line: the file, what is wrong, what mends it.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]
_MOST_WORDS, _MOST_README_LINES = 20, 150
_ADDRESS = "https://code.example.org/gpu"
_SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_FILES = (
    "LICENSE",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    "jupyter_gpu_release/py.typed",
    ".github/ISSUE_TEMPLATE/bug.md",
    ".github/ISSUE_TEMPLATE/idea.md",
)
_CHART = "deploy/helm/jupyter-gpu-release/Chart.yaml"
#: row of docs/versions.md → what the metadata calls it
_PARTS = {
    "JupyterLab": "jupyterlab",
    "Notebook": "notebook",
    "jupyter_server": "jupyter-server",
    "ipykernel": "ipykernel",
    "IPython": "ipython",
    "Ray (`[cluster]`)": "ray",
    "JupyterHub (`[hub]`)": "jupyterhub",
}


def _project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


def version_of(root: Path) -> str:
    """The one place of the version."""
    found = re.search(r'^__version__ = "(.*)"$', (root / "jupyter_gpu_release/_version.py").read_text(), re.MULTILINE)
    return found[1] if found else ""


def check_version(root: Path) -> Iterator[str]:
    """The version stands in one place, and what cannot read it agrees with it."""
    version = version_of(root)
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"jupyter_gpu_release/_version.py: {version!r} is no version; write MAJOR.MINOR.PATCH"
    if "version" not in _project(root)["project"].get("dynamic", ()):
        yield "pyproject.toml: it names a version of its own; make it dynamic"
    sidebar = json.loads((root / "labextension/package.json").read_text())["version"]
    if sidebar != version:
        yield f"labextension/package.json: version {sidebar}; write {version}"
    chart = yaml.safe_load((root / _CHART).read_text())
    for name in ("version", "appVersion"):
        if chart[name] != version:
            yield f"{_CHART}: {name} {chart[name]}; write {version}"
    for image in re.findall(r"-t \S+:(\S+)", (root / "docs/kubernetes.md").read_text()):
        if image != version:
            yield f"docs/kubernetes.md: an image {image}; write {version}"
    if "version" in yaml.safe_load((root / "CITATION.cff").read_text()):
        yield "CITATION.cff: it names a version of its own; leave it out"


def check_changelog(root: Path) -> Iterator[str]:
    """The changelog has the form of Keep a Changelog, a short line an entry, and begins with this version."""
    lines = (root / "CHANGELOG.md").read_text().splitlines()
    heads = [line for line in lines if line.startswith("## ")]
    if not heads or not heads[0].startswith(f"## [{version_of(root)}]"):
        yield f"CHANGELOG.md: the first version there is not {version_of(root)}"
    for head in heads:
        if not re.fullmatch(r"## \[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d|unreleased)", head):
            yield f"CHANGELOG.md: {head!r}; write `## [VERSION] - YYYY-MM-DD`"
    for number, line in enumerate(lines, 1):
        if line.startswith("### ") and line[4:] not in _SECTIONS:
            yield f"CHANGELOG.md:{number}: {line[4:]!r} is no section; one of {', '.join(_SECTIONS)}"
        words = len(line.split()) - 1
        if line.startswith("* ") and words > _MOST_WORDS:
            yield f"CHANGELOG.md:{number}: {words} words; at most {_MOST_WORDS}"
        if line.startswith((" ", "-")):
            yield f"CHANGELOG.md:{number}: an entry is one line, and begins with `* `"


def check_files(root: Path) -> Iterator[str]:
    """The files are there that people and indexes look for."""
    for name in _FILES:
        if not (root / name).exists():
            yield f"{name}: missing"
    project = _project(root)["project"]
    for pattern in project["license-files"]:
        if not (root / pattern).exists():
            yield f"pyproject.toml: license-files names {pattern}, which does not exist"


def check_notice(root: Path) -> Iterator[str]:
    """NOTICE names each file of data that comes from others."""
    notice = (root / "NOTICE").read_text()
    for folder in ("examples/traces", "tests/simulation/data"):
        for path in sorted((root / folder).iterdir()):
            name = f"{folder}/{path.name}"
            if path.suffix in (".csv", ".gz", ".json") and f"\n{name}\n" not in notice:
                yield f"NOTICE: {name} is not named; say where it is from, and its licence"


def check_versions(root: Path) -> Iterator[str]:
    """The page of versions says what the metadata allows."""
    document = _project(root)
    page = (root / "docs/versions.md").read_text()
    allowed = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE))
    extras = document["project"]["optional-dependencies"].values()
    groups = document["dependency-groups"].values()
    needs = [need for part in (document["project"]["dependencies"], *extras, *groups) for need in part]
    lowest = {"Python": document["project"]["requires-python"]}
    for row, name in _PARTS.items():
        lowest[row] = next(need for need in needs if isinstance(need, str) and re.match(rf"{name}\b[^-]", need))
    for row, need in lowest.items():
        bound = re.search(r">=([\d.]+)", need)
        if bound is None or not re.match(rf"{re.escape(bound[1])}\b", allowed.get(row, "")):
            yield f"docs/versions.md: {row}: {allowed.get(row, 'missing')!r}, but pyproject.toml has {need!r}"


def check_public_names(root: Path) -> Iterator[str]:
    """The page of compatibility lists the names that the page of Python documents."""
    api = (root / "docs/api.md").read_text()
    documented = set(re.findall(r"autofunction:: jupyter_gpu_release\.(\w+)|`gpu_release\.(\w+)`", api))
    names = {name for pair in documented for name in pair if name}
    (row,) = re.findall(r"^\| Python: (.*?) \|", (root / "docs/compatibility.md").read_text(), re.MULTILINE)
    for name in sorted(names ^ set(re.findall(r"`(\w+)`", row))):
        yield f"docs/compatibility.md: {name}: it is either there or in docs/api.md; name it in both or in none"


def check_readme(root: Path) -> Iterator[str]:
    """README is short, and all its links work on an index."""
    text = (root / "README.md").read_text()
    if text.count("\n") > _MOST_README_LINES:
        yield f"README.md: {text.count(chr(10))} lines; at most {_MOST_README_LINES}"
    describe = runpy.run_path(str(root / "hatch_build.py"))["long_description"]
    for target in re.findall(r'(?:\]\(|src="|srcset=")([^)"]*)', describe(text, _ADDRESS)):
        if not target.startswith(("https://", "#")):
            yield f"README.md: {target}: an index knows no such file; hatch_build.py has to make it absolute"
    if re.search(r"not (yet )?on PyPI", text):
        yield "README.md: it says that it is on no index; that is wrong once it is released"


def check_hosted(root: Path) -> Iterator[str]:
    """Hosted CI and documentation call nothing but targets of the Makefile that exist."""
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    for where, command in _hosted_commands(root):
        words = command.split()
        if words[0] == "make":
            wanted = [word for word in words[1:] if "=" not in word]
            for target in sorted(set(wanted) - targets):
                yield f"{where}: `make {target}`: the Makefile has no such target"
        elif words[0] not in (".ci/run", "mkdir", "cp"):
            yield f"{where}: `{command}`: call a target of the Makefile"


def _hosted_commands(root: Path) -> Iterator[tuple[str, str]]:
    """Each command with the file that it stands in; values of a matrix are filled in."""
    for path in sorted((root / ".github/workflows").glob("*.yaml")):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {}).get("target", [""])
            for step in (step for step in job["steps"] if "run" in step):
                for target in matrix:
                    yield path.name, step["run"].replace("${{ matrix.target }}", target)
    for command in yaml.safe_load((root / ".readthedocs.yaml").read_text())["build"]["commands"]:
        yield ".readthedocs.yaml", command


CHECKS: tuple[Callable[[Path], Iterator[str]], ...] = (
    check_version,
    check_changelog,
    check_files,
    check_notice,
    check_versions,
    check_public_names,
    check_readme,
    check_hosted,
)


def faults(root: Path = REPOSITORY) -> list[str]:
    """All faults of a repository."""
    return [fault for check in CHECKS for fault in check(root)]


def check_address(address: str) -> Iterator[str]:
    """The metadata name the public repository: an index leads there, to its tracker and to the documents."""
    if not re.fullmatch(r"https://[\w.-]+/\S+", address):
        given = f"{address!r} is no public address" if address else "no address"
        yield f"REPOSITORY: {given}; run `make release-check REPOSITORY=https://HOST/OWNER/NAME` (and `make dist`)"


def main() -> int:
    """Say what was checked, and each fault."""
    address = os.environ.get("JUPYTER_GPU_REPOSITORY", "")
    found = 0
    for what, lacking in [
        *((check.__doc__, list(check(REPOSITORY))) for check in CHECKS),
        (check_address.__doc__, list(check_address(address))),
    ]:
        found += len(lacking)
        print(f"{'✗' if lacking else '✓'} {what}", *(f"  {fault}" for fault in lacking), sep="\n")
    if "- unreleased" in (REPOSITORY / "CHANGELOG.md").read_text():
        print(f"· {version_of(REPOSITORY)} has no date in CHANGELOG.md yet: write it on the day of the release.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
