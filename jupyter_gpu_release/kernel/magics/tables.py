"""Small tables for the line magics, as text and as HTML in the reader's theme."""

from __future__ import annotations

import html
import shutil
import textwrap
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...presentation.status_tables import active_table, gpu_table, head_line, queue_table, waits
from ...presentation.sweep_rows import fold_sweeps
from ...presentation.text_table import DROPPED, WHOLE, text_lines
from ...presentation.wording import error_words, held_by, name_of, stored_words, wait_of_row, word_of
from ...protocol.rest import RunError, RunRow, RunsDocument, StatusDocument
from ...protocol.states import RunState
from ...units import format_seconds

_INDENT = "  "


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of text; shows itself in notebooks and terminals."""

    title: str
    heads: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    #: columns that a narrow terminal does without
    drop: Sequence[str] = DROPPED

    def __repr__(self) -> str:
        """Aligned columns."""
        width = shutil.get_terminal_size().columns
        title = textwrap.wrap(self.title, width, break_long_words=False) or [""]
        if not self.rows:
            return "\n".join(title)
        lines = text_lines(self.heads, self.rows, width - len(_INDENT), drop=self.drop)
        return "\n".join([*title, *(f"{_INDENT}{line}" for line in lines)])

    def _repr_html_(self) -> str:
        free = "text-align:left;vertical-align:top;padding:1px 10px 1px 0;overflow-wrap:anywhere"
        style = [free + (";white-space:nowrap" if head in WHOLE else ";min-width:6em") for head in self.heads]
        parts = [f"<div>{html.escape(self.title)}</div>"]
        if self.rows:
            heads = _cells("th", self.heads, style)
            rows = "".join(f"<tr>{_cells('td', row, style)}</tr>" for row in self.rows)
            parts.append(f'<table style="max-width:100%"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>')
        return "".join(parts)


def _cells(tag: str, texts: Sequence[str], styles: Sequence[str]) -> str:
    made = zip(texts, styles, strict=True)
    return "".join(f'<{tag} style="{style}">{html.escape(text)}</{tag}>' for text, style in made)


def status_tables(document: StatusDocument) -> list[Table]:
    """``%gpu_status``: the cluster in one line, its GPUs, what runs, what waits."""
    tables = (
        Table("GPUs", *gpu_table(document, time.time())),
        Table("Running", *active_table(document)),
        _queued(document),
    )
    lines = map(Table, waits(document.runs))
    return [Table(head_line(document)), *(table for table in tables if table.rows), *lines]


def _queued(document: StatusDocument) -> Table:
    part = "" if document.waiting == len(document.queue) else f" ({len(document.queue)} of {document.waiting})"
    holders = ", ".join(held_by(document)) if document.queue else ""
    return Table(f"Queued{part}{'; ' if holders else ''}{holders}", *queue_table(document))


def queue_tables(document: StatusDocument, sooner: Mapping[str, str]) -> list[Table]:
    """``%gpu_queue``: who waits, for what and until when; ``sooner``: what would help the reader's own runs."""
    if not document.queue:
        return [Table("Nobody waits")]
    return [_queued(document), *(Table(f"{run} would start sooner with {words}") for run, words in sooner.items())]


def runs_table(document: RunsDocument, most: int = 20, own: Collection[str] = ()) -> Table:
    """``%gpu_runs``: the newest runs; ``own``: those of this kernel whose names are awaited."""
    runs = fold_sweeps(document.runs)
    rows = [
        (
            row.run,
            _state(row, own),
            str(row.gpus),
            _when(row.submitted_at),
            format_seconds(row.queued_s),
            format_seconds(row.held_s) if row.granted_at else "",
            ", ".join(value.name for value in row.results),
            name_of(row),
            _error(row.error) or wait_of_row(row) or _to_do(row, own),
        )
        for row in runs[:most]
    ]
    count = f"{len(runs)} run{'' if len(runs) == 1 else 's'}" if len(runs) <= most else f"the newest {most} runs"
    return Table(
        "; ".join(filter(None, (count, stored_words(document.stored_bytes)))),
        ("run", "state", "GPUs", "submitted", "queued", "held", "results", "name", "error, or what to do"),
        rows,
        drop=("results", "queued", "held", "GPUs", "name"),
    )


def _state(row: RunRow, own: Collection[str]) -> str:
    how = "detached" if row.detached else "async" if row.run in own else ""
    return f"{word_of(row)} ({how})" if how else word_of(row)


def _to_do(row: RunRow, own: Collection[str]) -> str:
    if row.run in own:
        return f"%gpu_wait {row.run}"
    is_over = RunState.of(row.state).is_terminal
    return f"%gpu_attach {row.run}" if row.detached and not is_over else ""


def _when(at_s: float) -> str:
    return time.strftime("%m-%d %H:%M", time.localtime(at_s)) if at_s else ""


def _error(error: RunError | None) -> str:
    return "" if error is None else error_words(error)[:80]
