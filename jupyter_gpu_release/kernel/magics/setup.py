"""``%%gpu_setup`` and ``%gpu_setup``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.display import display

from ...errors import OptionError
from .tables import Table

if TYPE_CHECKING:
    from ..notebook import Notebook

_MOST_LETTERS = 60


def run_setup(notebook: Notebook, line: str, body: str | None) -> None:
    """Run the cell here and keep it for ranks; ``--list``: show those that are kept, ``--clear``: forget them."""
    word = line.strip()
    if body is not None:
        if word:
            raise OptionError(f"%%gpu_setup {word}: it has no options", hint="write %gpu_setup --list or --clear alone")
        notebook.setup_cells.run(body)
    elif word == "--clear":
        count = notebook.setup_cells.clear()
        display(Table(f"{count} setup cell{'' if count == 1 else 's'} forgotten; what they did here stays", (), []))
    elif word in ("", "--list"):
        display(_list(notebook))
    else:
        raise OptionError(
            f"%gpu_setup {word}: no such option", hint="--list shows the setup cells, --clear forgets them"
        )


def _list(notebook: Notebook) -> Table:
    rows = [
        (
            f"In [{cell.count}]",
            _first_line(cell.source),
            "once the GPU is there" if cell.is_late else "before the grant",
        )
        for cell in notebook.setup_cells.cells
    ]
    title = "Cells that each rank of this notebook runs first" if rows else "No setup cells: ranks begin with the cell"
    return Table(title, ("cell", "code", "runs"), rows)


def _first_line(source: str) -> str:
    lines = [line.strip() for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]
    text = lines[0] if lines else ""
    more = " …" if len(lines) > 1 or len(text) > _MOST_LETTERS else ""
    return text[:_MOST_LETTERS] + more
