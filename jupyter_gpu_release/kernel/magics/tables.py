"""Small tables for the line magics, as text and as HTML in the reader's theme."""

from __future__ import annotations

import html
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...presentation.wording import gpu_state
from ...protocol.rest import GpuRow, NodeRow, RunError, RunRow, RunsDocument, StatusDocument
from ...protocol.states import RunState
from ...units import format_bytes, format_seconds


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


def status_tables(document: StatusDocument) -> list[Table]:
    """``%gpu_status``: the cluster in one line, its GPUs, what runs, what waits."""
    gpus = document.gpus
    kind = "simulated GPUs" if document.simulated else "GPUs"
    external = f", {gpus.external} used by others" if gpus.external else ""
    warm = f" ({gpus.warm} of them kept warm)" if gpus.warm else ""
    head = Table(f"{document.gateway.url}: {gpus.total} {kind}, {gpus.held} held{warm}, {gpus.free} free{external}")
    return [head, *(table for table in (_gpus(document), _running(document), _waiting(document)) if table.rows)]


def _gpus(document: StatusDocument) -> Table:
    rows = [_gpu(node, gpu) for node in document.nodes for gpu in node.gpus]
    return Table("GPUs", ("host", "GPU", "name", "memory", "busy", "state", "user", "run"), rows)


def _gpu(node: NodeRow, gpu: GpuRow) -> tuple[str, ...]:
    memory = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.memory_bytes)}" if gpu.memory_bytes else ""
    busy = "" if gpu.utilization is None else f"{gpu.utilization * 100:.0f} %"
    state = gpu_state(gpu, time.time())
    return (node.host, gpu.index, gpu.name, memory, busy, state, gpu.user or "", gpu.run or "")


def _running(document: StatusDocument) -> Table:
    waiting = {row.run for row in document.queue}
    rows = [
        (
            row.run, row.user, row.state, str(row.gpus), format_seconds(row.held_s), _notebook(row.notebook),
            row.waits_for,
        )
        for row in document.runs
        if row.run not in waiting
    ]  # fmt: skip
    return Table("Running", ("run", "user", "state", "GPUs", "held", "notebook", "waits for"), rows)


def _waiting(document: StatusDocument) -> Table:
    rows = [
        (str(row.position or ""), row.run, row.user, str(row.gpus), row.reason, _seconds(row.start_estimate_s))
        for row in document.queue
    ]
    title = "Waiting" if document.waiting == len(rows) else f"Waiting ({len(rows)} of {document.waiting})"
    return Table(title, ("position", "run", "user", "GPUs", "reason", "starts in"), rows)


def runs_table(document: RunsDocument, most: int = 20, own: Collection[str] = ()) -> Table:
    """``%gpu_runs``: the newest runs; ``own``: those of this kernel whose names are awaited."""
    runs = document.runs
    rows = [
        (
            row.run, _state(row, own), str(row.gpus), _when(row.submitted_at), format_seconds(row.queued_s),
            format_seconds(row.held_s) if row.granted_at else "", ", ".join(value.name for value in row.results),
            row.name or _notebook(row.notebook), _error(row.error) or row.waits_for or _to_do(row, own),
        )
        for row in runs[:most]
    ]  # fmt: skip
    title = f"{len(runs)} run{'' if len(runs) == 1 else 's'}" if len(runs) <= most else f"the newest {most} runs"
    return Table(
        title, ("run", "state", "GPUs", "submitted", "queued", "held", "results", "name", "error, or what to do"), rows
    )


def _state(row: RunRow, own: Collection[str]) -> str:
    how = "detached" if row.detached else "async" if row.run in own else ""
    return f"{row.state} ({how})" if how else row.state


def _to_do(row: RunRow, own: Collection[str]) -> str:
    if row.run in own:
        return f"%gpu_wait {row.run}"
    is_over = RunState.of(row.state).is_terminal
    return f"%gpu_attach {row.run}" if row.detached and not is_over else ""


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def _when(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s)) if at_s else ""


def _notebook(path: str) -> str:
    return path.rpartition("/")[2]


def _error(error: RunError | None) -> str:
    return "" if error is None else f"{error.ename}: {error.evalue}"[:80]
