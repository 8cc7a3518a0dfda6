"""Fenced blocks of the documents, which tests run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_FENCE, _HEADING = re.compile(r"^```(.*)$"), re.compile(r"^#+ ")


@dataclass(frozen=True)
class Block:
    """One block; ``line``: where it begins, ``heading``: the nearest one above it."""

    document: str
    heading: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"docs/{self.document}:{self.line} ({self.heading}): {self.text.splitlines()[0]}"

    def filled(self, values: Mapping[str, str]) -> str:
        """The text with this machine's values in place of the example's; each of those must be there."""
        text = self.text
        for example, value in values.items():
            assert example in text, f"{self}: it does not say {example!r}"
            text = text.replace(example, value)
        return text

    def commands(self, values: Mapping[str, str] | None = None) -> list[str]:
        """The lines of the filled text, without empty ones."""
        return [line for line in self.filled(values or {}).splitlines() if line]


@cache
def blocks_of(document: str) -> tuple[Block, ...]:
    """All blocks of a document below ``docs/``, but for directives (``{toctree}``) of the site."""
    found, heading, opened, inside = list[Block](), "", (0, ""), list[str]()
    for number, line in enumerate((DOCS / document).read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and opened[0]:
            if not opened[1].startswith("{"):
                found.append(Block(document, heading, *opened, "".join(f"{one}\n" for one in inside)))
            opened, inside = (0, ""), []
        elif fence:
            opened = (number, fence[1].strip())
        elif opened[0]:
            inside.append(line)
        elif _HEADING.match(line):
            heading = line
    return tuple(found)


def block(document: str, heading: str, beginning: str = "") -> Block:
    """The one block below a heading, or the one there that begins so. Calls with plain texts claim it as tested."""
    below = [one for one in blocks_of(document) if one.heading == heading]
    found = [one for one in below if one.text.startswith(beginning)]
    assert len(found) == 1, f"docs/{document}, {heading}, {beginning!r}: {len(found)} such blocks"
    return found[0]


def blocks_in(document: str, language: str) -> list[Block]:
    """All blocks of a document in one language; calls with plain texts claim them as tested."""
    return [one for one in blocks_of(document) if one.language == language]


def shell_environment(**settings: str) -> dict[str, str]:
    """An environment in which ``jupyter``, ``ray`` and ``python`` are those of this Python."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **settings}


def shell(text: str, folder: Path, limit_s: float = 200, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a block in a shell that ends at the first command that fails."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=shell_environment(**settings),
        capture_output=True,
        text=True,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
    )
