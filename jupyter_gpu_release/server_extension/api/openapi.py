"""The extension's interface as OpenAPI 3.1, made from the records; ``openapi.json`` is the file that is shipped.

``python -m jupyter_gpu_release.server_extension.api.openapi`` writes it anew; a test compares it with this and with
the routes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..._version import __version__
from ...protocol.rest import RunRow, RunsDocument
from ..models import Health, KeepReply, KernelsDocument, Released, ServerStatus
from .handlers import BASE, ExtendRequest, KeepRequest, ReleaseRequest

FILE = Path(__file__).parent / "openapi.json"
_PARAMETER = re.compile(r"{(\w+)}")
_TEXT = {"type": "string"}
_FACTS = {"type": "object", "required": ["code", "message", "mend"]} | {
    "properties": {"code": _TEXT, "message": _TEXT, "mend": _TEXT}
}
_ERROR = {"type": "object", "required": ["message"], "properties": {"error": _FACTS, "message": _TEXT}}


@dataclass(frozen=True)
class Operation:
    """One verb of one route."""

    method: str
    path: str
    summary: str
    response: Any = dict[str, Any]
    body: Any = None


OPERATIONS = (
    Operation("get", "/status", "Who holds what, who waits, what is missing", ServerStatus),
    Operation("get", "/health", "Whether the extension itself works", Health),
    Operation("get", "/runs", "Runs, newest first (?limit=1…1000&mine=1: your own alone)", RunsDocument),
    Operation("post", "/runs/{id}/cancel", "End a run: an interrupt, the second time a kill", RunRow),
    Operation("post", "/leases/{id}/release", "End a warm lease"),
    Operation("post", "/leases/{id}/extend", "Keep a warm lease for longer", body=ExtendRequest),
    Operation("get", "/kernels", "GPU memory that this server's kernels hold, and the policy's word", KernelsDocument),
    Operation("post", "/kernels/{id}/release", "Ask a kernel's GPU libraries to let go", Released, ReleaseRequest),
    Operation("post", "/kernels/{id}/keep", "Answer a warning: leave this kernel alone", KeepReply, KeepRequest),
)


def openapi_document() -> dict[str, Any]:
    """The whole document."""
    types = [kind for entry in OPERATIONS for kind in (entry.response, entry.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = {str(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for entry in OPERATIONS:
        paths.setdefault(BASE + entry.path, {})[entry.method] = _operation(entry, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jupyter_gpu_release in a Jupyter server",
            "version": __version__,
            "description": "Jupyter's own authentication, authorisation (resource `gpu_release`) and XSRF check.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(components) | {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "Authorization"}},
        },
        "security": [{"token": []}],
    }


def _operation(entry: Operation, by_type: dict[str, Any]) -> dict[str, Any]:
    refused = {"description": "refused", "content": _json({"$ref": "#/components/schemas/Error"})}
    done = {"description": "done", "content": _json(by_type[str(entry.response)])}
    operation: dict[str, Any] = {"summary": entry.summary, "responses": {"200": done, "default": refused}}
    if names := _PARAMETER.findall(entry.path):
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]
    if entry.body is not None:
        operation["requestBody"] = {"required": False, "content": _json(by_type[str(entry.body)])}
    return operation


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def file_content() -> bytes:
    """The content that ``openapi.json`` must have."""
    return msgspec.json.format(msgspec.json.encode(openapi_document()), indent=1) + b"\n"


if __name__ == "__main__":
    FILE.write_bytes(file_content())
