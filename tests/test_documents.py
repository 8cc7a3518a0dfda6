"""The documents of the repository hang together: links lead somewhere, contents name all sections."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = sorted([*(REPOSITORY / "docs").glob("*.md"), *REPOSITORY.glob("*.md")])
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
