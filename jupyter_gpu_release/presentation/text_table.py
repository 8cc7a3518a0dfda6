"""Tables in text that fit a width: the least important columns go, then names are cut; sentences are folded, or stand
below their row where their column would be narrow.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size

GAP = "  "
#: ids are copied and searched for, the others are a word or a number each: never folded or cut
WHOLE = frozenset(
    {
        "run",
        "id",
        "waiting run",
        "state",
        "GPUs",
        "GPU",
        "queued",
        "held",
        "released",
        "busy",
        "submitted",
        "place",
        "memory",
        "role",
        "created",
        "expires",
        "last used",
        "priority",
    }
)
#: what is told apart by its end
_CUT_AT_THE_BEGINNING = frozenset({"notebook", "host"})
_CUT_AT_THE_END = frozenset({"name", "user", "results"})
#: what a narrow table does without, the least important first; `--json` and `runs show` have everything
DROPPED = (
    "created",
    "released",
    "queued",
    "kept",
    "results",
    "name",
    "memory",
    "busy",
    "priority",
    "queue",
    "last used",
)
_LEAST = 10
_LEAST_LAST = 12
#: sentences that have less room in the last column stand below their rows
_LEAST_SENTENCE = 40
_INDENT = "    "
#: columns go before names are cut to less than this
_COMFORTABLE = 14


def text_lines(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    drop: Sequence[str] = DROPPED,
    draw: Callable[[str], str] = str,
) -> list[str]:
    """Lines of the table, the heads first. Only a table whose whole columns are wider than ``width`` is wider.

    ``drop``: columns that a narrow table does without, in this order; never the last one. ``draw``: puts a cell's
    colour around it.
    """
    columns = [_column(head, [row[at] for row in rows]) for at, head in enumerate(heads)]
    columns = [column for column in columns if any(column[1:])] or columns
    is_cut = columns[-1][0] in _CUT_AT_THE_BEGINNING or columns[-1][0] in _CUT_AT_THE_END
    sentence = 0 if is_cut else min(max(map(_width, set(columns[-1]))), _LEAST_SENTENCE)
    least = [_least_width(column) for column in columns]
    is_below = sentence > _COMFORTABLE and sum(least[:-1]) + sentence + len(GAP) * (len(least) - 1) > width
    if is_below:
        least[-1] = 0
    for head in drop:
        if sum(least) + len(GAP) * (len(least) - 1) <= width:
            break
        kept = [at for at, column in enumerate(columns) if column[0] != head or column is columns[-1]]
        columns, least = [columns[at] for at in kept], [least[at] for at in kept]
    heads = [column[0] for column in columns]
    full = [max(map(_width, set(column))) for column in columns]
    widths = _fitted([*full[:-1], 0] if is_below else full, heads, width)
    indent = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    room = max(_LEAST_LAST, width - indent)
    padded = [_padded(*facts, draw) for facts in zip(columns[:-1], widths, heads, strict=False)]
    if is_below:
        head, *lines = [GAP.join(cells).rstrip() for cells in zip(*padded, strict=True)]
        below = [_folded(text, width - len(_INDENT), _INDENT, draw) for text in columns[-1][1:]]
        return [head, *(line for first, more in zip(lines, below, strict=True) for line in (first, *more))]
    lasts = [_cut(text, room, heads[-1]) for text in columns[-1]] if is_cut else columns[-1]
    lines = []
    for *cells, last in zip(*padded, lasts, strict=True):
        first, *more = _folded(last, room, "", draw) or [""]
        lines.append(GAP.join([*cells, first]).rstrip())
        lines += [" " * indent + line for line in more]
    return lines


def _column(head: str, cells: list[str]) -> list[str]:
    """Head and cells; what is there many times is looked at once."""
    plain = {cell: _plain(cell) for cell in set(cells)}
    return [head, *map(plain.__getitem__, cells)]


def _folded(text: str, room: int, indent: str, draw: Callable[[str], str]) -> list[str]:
    """Lines of a sentence; a command with its run can be copied from one line."""
    if _width(text) <= room:
        return [indent + draw(text)] if text else []
    kept = re.sub(r"(%gpu_\w+) (\S)", "\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(kept, room, break_on_hyphens=False)
    return [indent + draw(line.replace("\N{NO-BREAK SPACE}", " ")) for line in lines]


def _padded(column: list[str], size: int, head: str, draw: Callable[[str], str]) -> list[str]:
    texts = {text: _drawn(_cut(text, size, head), size, draw) for text in set(column)}
    return [texts[text] for text in column]


def _drawn(text: str, size: int, draw: Callable[[str], str]) -> str:
    return draw(text) + " " * (size - _width(text))


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _least_width(column: list[str]) -> int:
    widest = max(map(_width, set(column)))
    return widest if column[0] in WHOLE else min(widest, _COMFORTABLE)


def _fitted(widths: list[int], heads: Sequence[str], width: int) -> list[int]:
    """Widths of which the widest that may be cut give way, until the last column has the room that it needs."""
    last = min(widths[-1], max(_LEAST_LAST, width // 4))
    over = sum(widths[:-1]) + len(GAP) * (len(widths) - 1) + last - width
    while over > 0:
        loose = [at for at, head in enumerate(heads[:-1]) if head not in WHOLE and widths[at] > _LEAST]
        if not loose:
            break
        widths[max(loose, key=widths.__getitem__)] -= 1
        over -= 1
    return widths


def _cut(text: str, size: int, head: str) -> str:
    if _width(text) <= size:
        return text
    if head not in _CUT_AT_THE_BEGINNING:
        return f"{set_cell_size(text, size - 1)}…"
    while cell_len(text) > size - 1:
        text = text[1:]
    return f"…{text}"


def _plain(text: str) -> str:
    """A label of somebody else's must not move the cursor."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)
