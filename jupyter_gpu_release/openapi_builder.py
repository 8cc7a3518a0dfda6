"""OpenAPI 3.1 documents, made from routes and record types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ._version import __version__

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)}")
_TEXT = {"type": "string"}
#: an error as every answer of ours tells it
ERROR_FACTS = {
    "type": "object",
    "required": ["code", "message", "mend"],
    "properties": dict.fromkeys(("code", "message", "mend"), _TEXT),
}


@dataclass(frozen=True)
class Operation:
    """One verb of one route. ``response`` and ``body`` are types; ``query`` maps parameters to (type, meaning)."""

    method: str
    path: str
    summary: str
    response: Any = None
    body: Any = None
    query: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    status: int = 200
    needs_body: bool = True
    #: what the route's WebSocket does, where it has one
    socket: str = ""


def document(
    operations: Iterable[Operation], *, info: Mapping[str, str], error: Mapping[str, Any], token: Mapping[str, str]
) -> dict[str, Any]:
    """The document. ``error``: the schema of a refusal; ``token``: how one says who one is."""
    table = list(operations)
    types = [kind for entry in table for kind in (entry.response, entry.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    for schema in components.values():  # versions of msgspec differ in what they leave of a docstring's indents
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])
    by_type = {str(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for entry in table:
        verb = "get" if entry.method == "WS" else entry.method.lower()
        paths.setdefault(entry.path, {})[verb] = _operation(entry, by_type)
    return {
        "openapi": "3.1.0",
        "info": {**info, "version": __version__},
        "paths": paths,
        "components": {"schemas": components | {"Error": error}, "securitySchemes": {"token": token}},
        "security": [{"token": []}],
    }


def _operation(entry: Operation, by_type: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": entry.summary, "responses": _responses(entry, by_type)}
    if parameters := _parameters(entry):
        operation["parameters"] = parameters
    if entry.body is not None:
        operation["requestBody"] = {"required": entry.needs_body, "content": _json(by_type[str(entry.body)])}
    if entry.socket:
        operation["x-websocket"] = entry.socket
    return operation


def _responses(entry: Operation, by_type: Mapping[str, Any]) -> dict[str, Any]:
    if entry.method == "WS":
        good: dict[str, Any] = {"101": {"description": "the socket is open"}}
    else:
        content = {"content": _json(by_type[str(entry.response)])} if entry.response is not None else {}
        good = {str(entry.status): {"description": "done", **content}}
    return good | {"default": {"description": "refused", "content": _json({"$ref": "#/components/schemas/Error"})}}


def _parameters(entry: Operation) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in _PARAMETER.findall(entry.path)
    ]
    in_query = [
        {"name": name, "in": "query", "description": text, "schema": {"type": kind}}
        for name, (kind, text) in entry.query.items()
    ]
    return in_path + in_query


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
