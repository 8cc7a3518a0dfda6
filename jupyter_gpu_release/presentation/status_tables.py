"""Heads and rows of the tables of a cluster's status, for the command line and for magics."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.rest import GpuRow, RunRow, StatusDocument
from ..units import format_part, format_percent, format_seconds
from .wording import format_drained, gpu_state, name_of, person, run_word, start_of_row, wait_of_row

Rows = list[tuple[str, ...]]


def head_line(status: StatusDocument) -> str:
    """The cluster in one line: how many GPUs it has, and who has them."""
    gpus = status.gpus
    kind = "simulated GPUs" if status.simulated else "GPUs"
    others = f", {gpus.external} used by others" if gpus.external else ""
    warm = f" ({gpus.warm} of them kept warm)" if gpus.warm else ""
    free = f"{gpus.free} free{format_drained(status)}{others}"
    return f"{status.gateway.url} · {gpus.total} {kind}: {gpus.held} held{warm}, {free}"


def waits(runs: Iterable[RunRow]) -> list[str]:
    """A line for each run that waits for something else than GPUs."""
    return [f"{run.run}: {wait_of_row(run)}" for run in runs if run.waits_for]


def gpu_table(status: StatusDocument, now_s: float) -> tuple[tuple[str, ...], Rows]:
    """All GPUs."""
    rows: Rows = [(node.host, gpu.index, *_gpu(gpu, status.user, now_s)) for node in status.nodes for gpu in node.gpus]
    return ("host", "GPU", "name", "memory", "busy", "state", "run", "user"), rows


def _gpu(gpu: GpuRow, me: str, now_s: float) -> tuple[str, ...]:
    memory = format_part(gpu.used_bytes, gpu.memory_bytes) if gpu.memory_bytes else ""
    busy = "" if gpu.utilization is None else format_percent(gpu.utilization)
    runs, users = gpu.run or "", person(gpu.user or "", me)
    if gpu.parts:
        runs = ", ".join(part.run for part in gpu.parts)
        users = ", ".join(f"{person(part.user, me)} {part.gpus:g}" for part in gpu.parts)
    name = f"{gpu.name} of GPU {gpu.slice_of}" if gpu.slice_of else gpu.name
    return name, memory, busy, gpu_state(gpu, now_s), runs, users


def active_table(status: StatusDocument) -> tuple[tuple[str, ...], Rows]:
    """Runs that have begun and are not over."""
    queued = {row.run for row in status.queue}
    rows: Rows = [
        (
            row.run,
            person(row.user, status.user),
            run_word(row.state),
            str(row.gpus),
            format_seconds(row.queued_s),
            format_seconds(row.held_s),
            name_of(row),
        )
        for row in status.runs
        if row.run not in queued
    ]
    return ("run", "user", "state", "GPUs", "queued", "held", "name"), rows


def queue_table(status: StatusDocument) -> tuple[tuple[str, ...], Rows]:
    """Runs that wait, and why."""
    rows: Rows = [
        (
            str(row.position or ""),
            row.run,
            person(row.user, status.user),
            row.queue,
            row.priority,
            str(row.gpus),
            _why(row, status.user),
        )
        for row in status.queue
    ]
    return ("place", "run", "user", "queue", "priority", "GPUs", "why it waits, and when it starts"), rows


def _why(row: RunRow, me: str) -> str:
    return "; ".join(filter(None, (row.reason, start_of_row(row, me))))
