"""Pages that lie outside of ``docs/``: documents of the repository and the examples.

Each build brings them anew to ``docs/_made`` (not committed), examples with the outputs that ``make examples`` kept.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
MADE = REPOSITORY / "docs" / "_made"
_OUTSIDE = {"ARCHITECTURE.md": "architecture", "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}


def make_pages() -> None:
    """Bring what lies outside of ``docs/``."""
    shutil.rmtree(MADE, ignore_errors=True)
    MADE.mkdir()
    for file, name in _OUTSIDE.items():
        (MADE / f"{name}.md").write_text(_moved((REPOSITORY / file).read_text(), "", "_made"))
    for notebook in sorted((REPOSITORY / "examples").glob("*.ipynb")):
        ran = REPOSITORY / "docs" / "examples" / notebook.name
        (MADE / notebook.name).write_text(_notebook((ran if ran.exists() else notebook).read_text()))


def _notebook(text: str) -> str:
    """A notebook whose words link to pages of the site."""
    book = json.loads(text)
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = _moved("".join(cell["source"]), "examples", "_made")
    return json.dumps(book)


#: ``[text](path#anchor)``, not with an address of the web; in a code span brackets may stand in the text
_LINK = re.compile(r"(?<!!)\[((?:`[^`]*`|[^\[\]`])*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def _moved(text: str, folder: str, shown_in: str) -> str:
    """The text with its links as they are on the site. Of files that are no pages only the text stays.

    ``folder``: the text's own, in the repository. ``shown_in``: the folder of its page, below ``docs/``.
    """

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        page = _page_of(os.path.normpath(os.path.join(folder, target)))
        return f"[{words}]({os.path.relpath(page, shown_in)}{anchor})" if page else words

    return _LINK.sub(link, text)


def _page_of(path: str) -> str | None:
    """The page of the site that a file of the repository is."""
    name = Path(path).name
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if name == "README.md":
        return "index.md"
    if name in _OUTSIDE:
        return f"_made/{_OUTSIDE[name]}.md"
    return f"_made/{name}" if name.endswith(".ipynb") else None


def _read(app: Any, name: str, source: list[str]) -> None:
    folder = os.path.dirname(name)
    if folder != "_made":
        source[0] = _moved(source[0], os.path.join("docs", folder), folder or ".")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", lambda app, config: make_pages())
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
