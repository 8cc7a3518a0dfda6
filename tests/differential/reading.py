"""Notebooks as code cells: ``.ipynb`` files, and scripts in the percent format (``# %%`` begins a cell)."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat

#: `# %%time` is a magic of the cell
_CELL = re.compile(r"^# ?%%((?: .*)?)$", re.MULTILINE)
_MARKDOWN = re.compile(r"\s*\[(markdown|md|raw)\]")
#: `# %matplotlib inline` in a script is the magic itself, so that the file stays valid Python
_MAGIC = re.compile(r"^( *)# ([%!]\S)", re.MULTILINE)
_OURS = re.compile(r"^%%?gpu_", re.MULTILINE)
#: both runs have the extension from the beginning
_LOAD = re.compile(r"^%load_ext jupyter_gpu_release$", re.MULTILINE)


def cells_of(path: Path) -> list[str]:
    """The sources of the code cells."""
    if path.suffix == ".ipynb":
        book = nbformat.read(path, as_version=4)
        sources = [_LOAD.sub("", cell.source) for cell in book.cells if cell.cell_type == "code"]
        return [source for source in sources if source.strip()]
    return percent_cells(path.read_text())


def percent_cells(text: str) -> list[str]:
    """What stands between two marks; text before the first one (a docstring, say) is no cell."""
    _, *parts = _CELL.split(text)
    cells = [body for title, body in zip(parts[::2], parts[1::2], strict=True) if not _MARKDOWN.match(title)]
    return [_MAGIC.sub(r"\1\2", body.strip("\n")) for body in cells if body.strip()]


def is_ours(source: str) -> bool:
    """Tell if a cell has one of our own magics."""
    return bool(_OURS.search(source))


def on_a_gpu(source: str) -> str:
    """The same cell as a GPU cell; our own magics stay what they are."""
    return source if is_ours(source) else f"%%gpu_train\n{source}"
