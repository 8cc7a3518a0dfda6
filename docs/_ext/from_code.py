"""Pages that the code writes: options, commands, errors; and pages that lie outside of ``docs/``.

They are made anew by each build, below ``docs/_made`` (not committed).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jupyter_gpu_release import errors
from jupyter_gpu_release.cli.parser import command_helps
from jupyter_gpu_release.options.definitions import OPTIONS

REPOSITORY = Path(__file__).parents[2]
MADE = REPOSITORY / "docs" / "_made"
_OUTSIDE = {"ARCHITECTURE.md": "architecture", "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}


def options_page() -> str:
    """Every option of ``%%gpu_train``, from the table that its parser reads."""
    written = {name: f"--{name} {option.metavar}".strip() for name, option in OPTIONS.items()}
    rows = [(f"`{written[name]}`", option.help) for name, option in OPTIONS.items()]
    intro = "Of `%%gpu_train`; with `_` for `-` also of `launch` and `@gpu`. In brackets: the default."
    return _page("# Options", intro, _table(("option", "meaning"), rows))


def commands_page() -> str:
    """The help of every command."""
    parts = [f"## jupyter gpu {name}\n\n```text\n{text.strip()}\n```" for name, text in command_helps().items()]
    return _page("# Commands", "What `jupyter gpu COMMAND --help` prints.", *parts)


def errors_page() -> str:
    """Every error of ours with its code and the status that the gateway answers with."""
    rows = [
        (f"`{kind.__name__}`", (kind.__doc__ or "").replace("``", "`"), f"`{kind.code}`", str(kind.http_status))
        for kind in _errors(errors.GpuReleaseError)
    ]
    intro = "All derive from `jupyter_gpu_release.errors.GpuReleaseError`. `mend` says what to do."
    return _page("# Errors", intro, _table(("error", "when", "code", "HTTP"), rows))


def _errors(kind: type[errors.GpuReleaseError]) -> Iterator[type[errors.GpuReleaseError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
        yield from _errors(child)


def _page(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    cells = ([" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


_PAGES: dict[str, Callable[[], str]] = {"options": options_page, "commands": commands_page, "errors": errors_page}


def make_pages() -> None:
    """Write what the code says, and bring what lies outside of ``docs/``."""
    shutil.rmtree(MADE, ignore_errors=True)
    MADE.mkdir()
    for name, page in _PAGES.items():
        (MADE / f"{name}.md").write_text(page())
    for file, name in _OUTSIDE.items():
        (MADE / f"{name}.md").write_text(_moved((REPOSITORY / file).read_text(), from_root=True, below="../"))
    for notebook in sorted((REPOSITORY / "examples").glob("*.ipynb")):
        ran = REPOSITORY / "examples" / "out" / notebook.name
        shutil.copy(ran if ran.exists() else notebook, MADE / notebook.name)


#: ``[text](path#anchor)``, not with an address of the web; in a code span brackets may stand in the text
_LINK = re.compile(r"(?<!!)\[((?:`[^`]*`|[^\[\]`])*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def _moved(text: str, *, from_root: bool, below: str) -> str:
    """The text with its links as they are on the site. Of files that are no pages only the text stays."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if not from_root and not target.startswith("../"):
            return found[0]
        page = _page_of(target.removeprefix("../"))
        return f"[{words}]({below}{page}{anchor})" if page else words

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
    if not name.startswith("_made/"):
        source[0] = _moved(source[0], from_root=False, below="")


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("config-inited", lambda app, config: make_pages())
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
