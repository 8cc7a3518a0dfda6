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
    columns = [_column(head, [row[at] for row in rows]) for at, head in enumerate(heads)]
    widths = [max(map(_width, set(column))) for column in columns]
    indent = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    room = max(_LEAST_LAST, console.width - indent)
    drawn = {text: _drawn(console, text, style) for text, style in styles.items()}
    bold = {head: _drawn(console, head, "bold") for head in heads}
    padded = [_padded(column, width, bold, drawn) for column, width in zip(columns[:-1], widths[:-1], strict=True)]
    lasts = [_drawn(console, heads[-1], "bold"), *columns[-1][1:]]
    lines: list[str] = []
    for *cells, last in zip(*padded, lasts, strict=True):
        first, *more = textwrap.wrap(last, room) if len(lines) and _width(last) > room else [last]
        lines.append(_GAP.join([*cells, drawn.get(first, first)]).rstrip())
        lines += [" " * indent + line for line in more]
    lines.insert(1, _drawn(console, "─" * min(indent + widths[-1], indent + room), "dim"))
    console.file.write("\n".join(lines) + "\n")


def _column(head: str, cells: list[str]) -> list[str]:
    """Head and cells; what is there many times is looked at once."""
    plain = {cell: _plain(cell) for cell in set(cells)}
    return [head, *map(plain.__getitem__, cells)]


def _padded(column: list[str], width: int, bold: Mapping[str, str], drawn: Mapping[str, str]) -> list[str]:
    head, *cells = column
    texts = {text: drawn.get(text, text) + " " * (width - _width(text)) for text in set(cells)}
    return [bold[head] + " " * (width - _width(head)), *map(texts.__getitem__, cells)]


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _plain(text: str) -> str:
    """A label of somebody else's must not move the cursor."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def _drawn(console: Console, text: str, style: str) -> str:
    if console.color_system is None:
        return text
    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)
