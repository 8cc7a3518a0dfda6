"""Small tables for the line magics, as text and as HTML in the reader's theme."""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.resources import format_bytes, format_seconds

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A title, column heads and rows of text; shows itself in notebooks and terminals."""

    title: str
    heads: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        """Aligned columns."""
        if not self.rows:
            return self.title
        widths = [max(len(row[i]) for row in [self.heads, *self.rows]) for i in range(len(self.heads))]
        lines = [self.title]
        for row in [self.heads, *self.rows]:
            padded = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append(f"  {padded.rstrip()}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cell = 'style="text-align:left;padding:1px 10px 1px 0"'
        parts = [f"<div>{html.escape(self.title)}</div>"]
        if self.rows:
            heads = "".join(f"<th {cell}>{html.escape(head)}</th>" for head in self.heads)
            rows = "".join(
                "<tr>" + "".join(f"<td {cell}>{html.escape(text)}</td>" for text in row) + "</tr>" for row in self.rows
            )
            parts.append(f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>")
        return "".join(parts)


def status_tables(document: Document) -> list[Table]:
    """``%gpu_status``: the cluster in one line, its cards, what runs, what waits."""
    gpus = document["gpus"]
    kind = "simulated GPUs" if document.get("simulated") else "GPUs"
    held = f"{gpus['held']} held, {gpus['free']} free"
    external = f", {gpus['external']} used by others" if gpus.get("external") else ""
    head = Table(f"{document['gateway'].get('url', '')}: {gpus['total']} {kind}, {held}{external}")
    return [head, *(table for table in (_cards(document), _running(document), _waiting(document)) if table.rows)]


def _cards(document: Document) -> Table:
    rows = []
    for node in document.get("nodes", ()):
        for card in node.get("gpus", ()):
            rows.append(
                (
                    str(node.get("host", "")), str(card.get("index", "")), str(card.get("name", "")),
                    _memory(card), _percent(card.get("utilization")), str(card.get("state", "")),
                    str(card.get("user") or ""), str(card.get("run") or ""),
                )
            )  # fmt: skip
    return Table("Cards", ("host", "GPU", "name", "memory", "busy", "state", "user", "run"), rows)


def _memory(card: Document) -> str:
    total = card.get("memory_bytes")
    if not total:
        return ""
    return f"{format_bytes(card.get('used_bytes') or 0)} of {format_bytes(total)}"


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction * 100:.0f} %"


def _running(document: Document) -> Table:
    waiting = {entry.get("run") for entry in document.get("queue", ())}
    rows = [
        (
            str(run["run"]), str(run.get("user", "")), str(run.get("state", "")), str(run.get("gpus", "")),
            _seconds(run.get("held_s")), _notebook(run),
        )
        for run in document.get("runs", ()) if run["run"] not in waiting
    ]  # fmt: skip
    return Table("Running", ("run", "user", "state", "GPUs", "held", "notebook"), rows)


def _waiting(document: Document) -> Table:
    rows = [
        (
            str(entry.get("position", "")), str(entry["run"]), str(entry.get("user", "")), str(entry.get("gpus", "")),
            str(entry.get("reason") or ""), _seconds(entry.get("start_estimate_s")),
        )
        for entry in document.get("queue", ())
    ]  # fmt: skip
    return Table("Waiting", ("position", "run", "user", "GPUs", "reason", "starts in"), rows)


def runs_table(document: Document, most: int = 20) -> Table:
    """``%gpu_runs``: the newest runs."""
    runs: Sequence[Document] = document["runs"]
    rows = [
        (
            str(run["run"]), str(run.get("state", "")), str(run.get("gpus", "")), _when(run.get("submitted_at")),
            _seconds(run.get("queued_s")), _seconds(run.get("held_s")),
            ", ".join(str(result["name"]) for result in run.get("results") or ()),
            str(run.get("name") or "") or _notebook(run), _error(run.get("error")),
        )
        for run in runs[:most]
    ]  # fmt: skip
    number = f"{len(rows)} of {len(runs)}" if len(runs) > most else str(len(runs))
    heads = ("run", "state", "GPUs", "submitted", "queued", "held", "results", "name", "error")
    return Table(f"{number} run{'' if len(runs) == 1 else 's'}", heads, rows)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def _when(at_s: float | None) -> str:
    return "" if not at_s else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def _notebook(run: Document) -> str:
    return str(run.get("notebook") or "").rpartition("/")[2]


def _error(error: object) -> str:
    if isinstance(error, Mapping):
        return f"{error.get('ename', '')}: {error.get('evalue', '')}"[:80]
    return str(error or "")[:80]
