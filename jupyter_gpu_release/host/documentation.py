"""The documentation of this installation: the pages that came with it, and where they stand on the web."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
#: in a wheel within the package, in a clone beside it
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parent / "docs")
#: the folders with pages for users and operators
_SECTIONS = (
    "",
    "start",
    "use",
    "operate",
    "understand",
    "reference",
    "kubernetes",
    "scheduling",
    "semantics",
    "server",
)
#: the site's front page, and what Sphinx reads out of the code
_FOR_THE_SITE = ("api", "index")
_DISTRIBUTION, _LABEL = "jupyter-gpu-release", "Documentation"


def installed_pages() -> dict[str, Path]:
    """Each page's file by the page's name, such as ``tutorial`` or ``use/gangs``; ``use``: that section's contents."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if folder is None:
        return {}
    files = [file for section in _SECTIONS for file in sorted((folder / section).glob("*.md"))]
    pages = {file.relative_to(folder).with_suffix("").as_posix().removesuffix("/index"): file for file in files}
    return {name: file for name, file in pages.items() if name not in _FOR_THE_SITE}


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
