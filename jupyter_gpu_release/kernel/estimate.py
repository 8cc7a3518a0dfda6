"""``--estimate``: what would be sent and how soon it would start; runs nothing and starts no cluster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from IPython.display import display

from ..core.documents import StatusDocument
from ..core.messages import INLINE_LIMIT_BYTES
from ..core.resources import ResourceAsk, format_bytes
from ..errors import GpuReleaseError
from .namespace import Prepared
from .tables import Table
from .training import prepare

if TYPE_CHECKING:
    from .notebook import Notebook
    from .submission import Cell


def estimate(notebook: Notebook, cell: Cell) -> None:
    """Show the plan of ``cell``: names and sizes, free GPUs, place in the queue."""
    prepared = prepare(notebook, cell)
    display(sent_table(prepared))
    display(_outlook(notebook, cell))


def sent_table(prepared: Prepared) -> Table:
    """The names that would be sent, the largest first."""
    rows = [
        (value.name, value.type, format_bytes(value.bytes))
        for value in sorted(prepared.sent, key=lambda value: -value.bytes)
    ]
    way = "inside the message" if prepared.total_bytes <= INLINE_LIMIT_BYTES else "through the store"
    title = f"To be sent: {format_bytes(prepared.total_bytes)} {way}" if rows else "No names would be sent"
    again = [(name, "made again there", expression) for name, expression in prepared.reevaluate.items()]
    held = [(name, "held back", "looks like a secret") for name in prepared.held_back]
    return Table(title, ("name", "type", "size"), [*rows, *again, *held])


def _outlook(notebook: Notebook, cell: Cell) -> Table:
    from ..client.rest import GatewayClient

    try:
        with GatewayClient.of(notebook.link.target(notebook.settings)) as gateway:
            document = gateway.status()
    except GpuReleaseError as error:
        return Table(f"When it would start is not known: {error.message}")
    return Table(outlook(document, cell.options.ask))


def outlook(document: StatusDocument, ask: ResourceAsk) -> str:
    """When a run with this ask would start, as far as the queue tells."""
    kind = "simulated GPUs" if document.simulated else "GPUs"
    gpus = document.gpus
    wanted = f"{ask.gpus} of {gpus.total} {kind} wanted, {gpus.free} free"
    if ask.gpus > gpus.total:
        return f"{wanted}: it would be refused, this cluster has only {gpus.total}"
    if ask.gpus <= gpus.free and not document.queue:
        return f"{wanted}: it would start at once"
    ahead = sum(entry.gpus for entry in document.queue)
    known = [entry.start_estimate_s for entry in document.queue if entry.start_estimate_s is not None]
    latest = f", not before {math.ceil(max(known))} s from now" if known else ""
    return f"{wanted}: it would wait at position {len(document.queue) + 1} (ahead of it: {ahead} {kind}){latest}"
