"""The documents of the repository hang together: links lead somewhere, contents name all sections."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_gpu_release.cli.parser import parse
from jupyter_gpu_release.options.definitions import split_line
from jupyter_gpu_release.options.run_options import build_options
from jupyter_gpu_release.server_extension.config import GpuRelease
from jupyter_gpu_release.server_extension.culling.config import GpuCuller

REPOSITORY = Path(__file__).parents[1]
TRAITS = {kind.__name__: set(kind.class_own_traits(config=True)) for kind in (GpuCuller, GpuRelease)}
DOCUMENTS = sorted(
    [*(REPOSITORY / "docs").glob("*.md"), *(REPOSITORY / "docs" / "design").glob("*.md"), *REPOSITORY.glob("*.md")]
)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")


def _headings(path: Path, level: str = "##*") -> set[str]:
    """As GitHub names them: small letters, no punctuation, hyphens for blanks."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(rf"^{level} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path: Path) -> None:
    for file, anchor in _LINK.findall(path.read_text()):
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), f"{file} does not exist"
        assert not anchor or anchor[1:] in _headings(target), f"{file}{anchor}: no such heading"


@pytest.mark.parametrize("name", ["user-guide.md", "operator-guide.md", "idle-policy.md"])
def test_the_contents_name_every_section(name: str) -> None:
    path = REPOSITORY / "docs" / name
    first, _, _ = path.read_text().partition("\n## ")
    assert _headings(path, "##") <= set(re.findall(r"\(#([^)]*)\)", first))


def _fenced(path: Path, start: str) -> list[str]:
    """Lines of fenced blocks that begin so, without what explains them (after ``#`` or three blanks)."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith(start)]
    return [re.split(r"   |  #", line)[0].removeprefix(start).strip() for line in lines]


def test_every_command_that_is_written_down_is_understood() -> None:
    shown = [line for path in DOCUMENTS for line in _fenced(path, "jupyter gpu ") if "|" not in line]
    assert len(shown) > 8
    for line in shown:
        parse(shlex.split(line))
    cells = [line for path in DOCUMENTS for line in _fenced(path, "%%gpu_train") if "{" not in line]
    assert len(cells) > 12
    for cell in cells:
        line = split_line(cell)
        assert not line.rest, cell
        build_options(line.written)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_setting_that_is_written_down_exists(path: Path) -> None:
    for name, trait in re.findall(r"c\.(Gpu[A-Z]\w+)\.(\w+)", path.read_text()):
        assert trait in TRAITS[name], f"c.{name}.{trait}"


def test_the_example_of_the_idle_policy_is_accepted() -> None:
    text = (REPOSITORY / "docs" / "idle-policy.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    config = Config()
    exec(example, {"c": config})
    culler = GpuCuller(config=config)
    assert (culler.action, len(culler.overrides)) == ("release", 2)


def _known_differences() -> list[Any]:
    text = (REPOSITORY / "docs" / "notebook-semantics.md").read_text().split("\n## Known differences\n")[1]
    rows = [line.strip("| ").split(" | ") for line in text.split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [pytest.param(*row, id=row[-1].rpartition("::")[2].strip("`")) for row in rows[1:]]


@pytest.mark.parametrize(("difference", "said", "named"), _known_differences())
def test_every_known_difference_is_said_and_tested(difference: str, said: str, named: str) -> None:
    """Its sentence is in the code, in quotes in the table, and looked for by the test that the table names."""
    file, _, name = named.strip("`").partition("::")
    found = [node for node in ast.parse((REPOSITORY / file).read_text()).body if getattr(node, "name", "") == name]
    assert found, f"{named}: there is no such test"
    sentences = re.findall(r'"([^"]+)"', said)
    assert sentences, f"{difference}: no sentence in quotes"
    package = "\n".join(path.read_text() for path in (REPOSITORY / "jupyter_gpu_release").rglob("*.py"))
    for sentence in sentences:
        assert sentence in ast.unparse(found[0]), f"{named} does not look for {sentence!r}"
        assert sentence in package, f"nothing says {sentence!r}"


def test_the_known_differences_are_few() -> None:
    assert 0 < len(_known_differences()) <= 15
