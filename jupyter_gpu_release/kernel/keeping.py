"""``%gpu_release``: give back the GPUs that this kernel keeps for its next cell."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from ..core.documents import StatusDocument, WarmRow
from ..core.resources import format_seconds
from ..errors import ConflictError, GatewayUnavailableError
from .commands import refuse_words, rest

if TYPE_CHECKING:
    from .notebook import Notebook


def give_back(notebook: Notebook, line: str) -> None:
    """``%gpu_release``: end this kernel's warm leases and say what was freed."""
    refuse_words("gpu_release", line)
    for said in _given_back(notebook) or ["nothing is kept"]:
        sys.stdout.write(f"{said}\n")


def _given_back(notebook: Notebook) -> list[str]:
    said = []
    try:
        gateway = rest(notebook)
    except GatewayUnavailableError:  # no cluster, so nothing of it is kept; one that is named and silent is an error
        if notebook.link.is_configured(notebook.settings):
            raise
        return []
    with gateway:
        status = gateway.status()
        for row in own(status, notebook.link.session_id):
            try:
                gateway.release_lease(row.lease)
            except ConflictError:  # its time was over a moment ago, or a cell beside has just taken it
                continue
            said.append(_describe(row, simulated=status.simulated))
    return said


def own(status: StatusDocument, session: str) -> list[WarmRow]:
    """What a kernel keeps, by its session with the gateway."""
    return [row for row in status.warm if row.session == session]


def _describe(row: WarmRow, *, simulated: bool) -> str:
    plural = "" if row.gpus == 1 else "s"
    kind = "simulated GPU" if simulated else "GPU"
    where = f" on {', '.join(row.hosts)}" if row.hosts else ""
    held = format_seconds(max(0.0, time.time() - row.since))
    return f"given back: {row.gpus} {kind}{plural} ({', '.join(row.gpu_ids)}{where}), kept for {held} after {row.run}"
