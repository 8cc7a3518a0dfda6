"""The package's long description and addresses, as an index shows them.

An index knows no files of the repository. `make dist REPOSITORY=https://…` names where they can be read: links and
pictures lead there, and the address is in the metadata. Without it links are plain words and pictures are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_HTML_PICTURE = re.compile(r"<picture>.*?</picture>\n*", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]*)\)")
_SOURCE = re.compile(r'(src|srcset)="(?!https?:)([^"]*)"')


class IndexMetadata(MetadataHookInterface):
    """Fills in the fields that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling for each build."""
        address = os.environ.get("JUPYTER_GPU_REPOSITORY", "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": long_description(text, address)}
        if address:
            pages = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
            metadata["urls"] = {"Repository": address, "Issues": f"{address}/issues"} | {
                name: f"{address}/blob/HEAD/{page}" for name, page in pages.items()
            }


def long_description(readme: str, address: str) -> str:
    """The README for readers who have no repository beside it."""
    if not address:
        return _LINK.sub(r"\2", _PICTURE.sub("", _HTML_PICTURE.sub("", readme)))
    raw = f"{address}/raw/HEAD/"

    def link(found: re.Match[str]) -> str:
        base = raw if found[1] else f"{address}/blob/HEAD/"
        return f"{found[1]}[{found[2]}]({base}{found[3]})"

    return _SOURCE.sub(rf'\1="{raw}\2"', _LINK.sub(link, readme))
