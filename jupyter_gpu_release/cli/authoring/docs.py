"""``jupyter gpu docs``: the pages of the documentation that the package brings along."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from ...errors import OptionError
from ...host.documentation import installed_pages


def run(arguments: argparse.Namespace) -> int:
    """Show the page, or the list of pages."""
    pages = installed_pages()
    if arguments.page is None:
        _list(pages)
    else:
        _show(_find(arguments.page, pages))
    return 0


def _list(pages: dict[str, Path]) -> None:
    width = max((len(name) for name in pages), default=0)
    for name, file in pages.items():
        with file.open(encoding="utf-8") as lines:
            print(f"{name:<{width}}  {next(lines, '').lstrip('# ').strip()}")


def _find(name: str, pages: dict[str, Path]) -> Path:
    wanted = name.removesuffix(".md").removesuffix(".html")
    found = [name for name in pages if name == wanted or name.endswith(f"/{wanted}")]
    if found:
        return pages[found[0]]
    close = difflib.get_close_matches(wanted, pages, n=1)
    hint = f"did you mean `jupyter gpu docs {close[0]}`?" if close else "`jupyter gpu docs` lists the pages"
    raise OptionError(f"there is no page {name!r}", hint=hint)


def _show(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
