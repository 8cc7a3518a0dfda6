"""The documentation of this installation: the pages that came with it, and where they stand on the web."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
#: in a wheel within the package, in a clone beside it
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
#: contents of the site, which lead to the others, and what Sphinx reads out of the code
_FOR_THE_SITE = ("api", "guides", "index", "inside", "learn")
_DISTRIBUTION, _LABEL = "jupyter-gpu-release", "Documentation"


def installed_pages() -> dict[str, Path]:
    """Each page's file by the page's name."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    files = sorted(folder.glob("*.md")) if folder else []
    return {file.stem: file for file in files if file.stem not in _FOR_THE_SITE}


def web_address(page: str) -> str:
    """The address of a page, by what the package's metadata says; empty: it says nothing."""
    try:
        named = metadata.metadata(_DISTRIBUTION).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # the sources alone, on a path
        return ""
    addresses = dict(tuple(entry.split(", ", 1)) for entry in named if ", " in entry)
    front, slash, last = addresses.get(_LABEL, "").rpartition("/")
    name, _, ending = last.partition(".")
    return f"{front}/{page}.{ending}" if name == "index" and ending else f"{front}{slash}{last}"
