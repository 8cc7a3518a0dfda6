"""The extension's interface as OpenAPI 3.1, made from the records; ``openapi.json`` is the file that is shipped.

``python -m jupyter_gpu_release.server_extension.api.openapi`` writes it anew; a test compares it with this and with
the routes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ...openapi_builder import ERROR_FACTS, Operation, document
from .handlers import BASE
from .routes import OUTPUT, ROUTES

FILE = Path(__file__).parent / "openapi.json"
_ERROR = {
    "type": "object",
    "required": ["message"],
    "properties": {"error": ERROR_FACTS, "message": {"type": "string"}},
}


def _operations() -> Iterator[Operation]:
    for route in ROUTES:
        path, body = BASE + route.path, route.body
        yield Operation(route.method, path, route.summary, route.response, body, needs_body=False)
    path, summary, message = OUTPUT
    yield Operation("GET", BASE + path, summary, message)


def openapi_document() -> dict[str, Any]:
    """The whole document."""
    return document(
        _operations(),
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
