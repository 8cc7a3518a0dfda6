"""The extension's interface as OpenAPI 3.1, made from the records; ``openapi.json`` is the file that is shipped.

``python -m jupyter_gpu_release.server_extension.api.openapi`` writes it anew; a test compares it with this and with
the routes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ...checks.finding import Report
from ...openapi_builder import ERROR_FACTS, Operation, document
from ...protocol.rest import NotifyChange, NotifyDocument, RunRow, RunsDocument, WarmRow
from ..models import (
    AdviceDocument,
    CellRuns,
    ClusterStart,
    Health,
    KeepReply,
    KernelsDocument,
    OutputMessage,
    Released,
    RunPage,
    ServerStatus,
)
from .handlers import BASE, AdviceRequest, ExtendRequest, KeepRequest, ReleaseRequest

FILE = Path(__file__).parent / "openapi.json"
_ERROR = {
    "type": "object",
    "required": ["message"],
    "properties": {"error": ERROR_FACTS, "message": {"type": "string"}},
}
OPERATIONS = (
    Operation("GET", BASE + "/status", "Who holds what, who waits, what is missing", ServerStatus),
    Operation("GET", BASE + "/health", "Answer that the extension itself works", Health),
    Operation(
        "GET", BASE + "/doctor", "Check server, gateway and nodes now; each finding has its cure (?only=server)", Report
    ),
    Operation("GET", BASE + "/runs", "Runs, newest first (?limit=1…1000&mine=1: your own alone)", RunsDocument),
    Operation("GET", BASE + "/cells", "The newest run of each cell of a notebook (?notebook=PATH)", CellRuns),
    Operation(
        "POST",
        BASE + "/advice",
        "Which cells of a notebook are worth a GPU cell; nothing is run",
        AdviceDocument,
        AdviceRequest,
        needs_body=False,
    ),
    Operation("GET", BASE + "/runs/{id}", "All of one run: code, options, use of GPUs, lineage, files", RunPage),
    Operation("GET", BASE + "/runs/{id}/files/{path}", "A file of a run's folder, to be saved"),
    Operation("POST", BASE + "/runs/{id}/{word}", "`pin`: keep a run's results for good; `unpin`: no longer", RunRow),
    Operation(
        "GET", BASE + "/runs/{id}/output", "WebSocket: changes of its cell's outputs, then the receipt", OutputMessage
    ),
    Operation("POST", BASE + "/runs/{id}/cancel", "End a run: an interrupt, the second time a kill", RunRow),
    Operation(
        "POST", BASE + "/cluster/start", "Start this machine's own cluster, where none is there or named", ClusterStart
    ),
    Operation("POST", BASE + "/leases/{id}/release", "End a warm lease", WarmRow),
    Operation(
        "POST", BASE + "/leases/{id}/extend", "Keep a warm lease for longer", WarmRow, ExtendRequest, needs_body=False
    ),
    Operation("GET", BASE + "/notify", "How you are told of your detached runs", NotifyDocument),
    Operation(
        "POST",
        BASE + "/notify",
        "Change how you are told of your detached runs",
        NotifyDocument,
        NotifyChange,
        needs_body=False,
    ),
    Operation("POST", BASE + "/notify/test", "Send yourself a message by each way now", NotifyDocument),
    Operation(
        "GET", BASE + "/kernels", "GPU memory that this server's kernels hold, and the policy's word", KernelsDocument
    ),
    Operation(
        "POST",
        BASE + "/kernels/{id}/release",
        "Ask a kernel's GPU libraries to let go",
        Released,
        ReleaseRequest,
        needs_body=False,
    ),
    Operation(
        "POST",
        BASE + "/kernels/{id}/keep",
        "Answer a warning: leave this kernel alone",
        KeepReply,
        KeepRequest,
        needs_body=False,
    ),
)


def openapi_document() -> dict[str, Any]:
    """The whole document."""
    return document(
        OPERATIONS,
        info={
            "title": "jupyter_gpu_release in a Jupyter server",
            "description": "Jupyter's own authentication, authorisation (resource `gpu_release`) and XSRF check.",
        },
        error=_ERROR,
        token={"type": "apiKey", "in": "header", "name": "Authorization"},
    )


def file_content() -> bytes:
    """The content that ``openapi.json`` must have."""
    return msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1) + b"\n"


if __name__ == "__main__":
    FILE.write_bytes(file_content())
