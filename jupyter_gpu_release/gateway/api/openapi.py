"""The OpenAPI document, made from the route table and the record types, and a page that shows it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from ..._version import __version__
from .route import Route

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)}")
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "mend"],
            "properties": {name: {"type": "string"} for name in ("code", "message", "mend")},
        }
    },
}


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 for ``routes``."""
    table = list(routes)
    types = [kind for route in table for kind in (route.response, route.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        method = "get" if route.method == "WS" else route.method.lower()
        paths.setdefault(route.path, {})[method] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "jupyter_gpu_release gateway", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components | {"Error": _ERROR_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route, by_type: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": route.summary, "responses": _responses(route, by_type)}
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(by_type[route.body])}
    if route.socket is not None:
        operation["x-websocket"] = (route.socket.__doc__ or "").strip()
    return operation


def _responses(route: Route, by_type: dict[Any, Any]) -> dict[str, Any]:
    if route.method == "WS":
        good: dict[str, Any] = {"101": {"description": "the socket is open"}}
    else:
        content = {"content": _json(by_type[route.response])} if route.response is not None else {}
        good = {str(route.status): {"description": "done", **content}}
    return good | {"default": {"description": "refused", "content": _json({"$ref": "#/components/schemas/Error"})}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    in_query = [
        {"name": name, "in": "query", "description": text, "schema": {"type": kind}}
        for name, (kind, text) in route.query.items()
    ]
    return in_path + in_query


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def docs_page(document: dict[str, Any]) -> str:
    """The document as one HTML page that loads nothing from anywhere."""
    info = document["info"]
    operations = "".join(
        _operation_html(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(_schema_html(name, schema) for name, schema in document["components"]["schemas"].items())
    title = html.escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>Every route needs <code>Authorization: Bearer &lt;token&gt;</code>.</p>"
        f"<h2>Routes</h2>{operations}<h2>Records</h2>{schemas}</html>"
    )


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{background:#8882;padding:.1em .3em;border-radius:3px}pre{background:#8882;padding:.6em;overflow:auto}"
    "h3{margin-bottom:.2rem}td{padding:.1rem .8rem .1rem 0;vertical-align:top}"
)


def _operation_html(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(p['name'])}</code><td>{html.escape(p.get('description', 'in the path'))}"
        for p in operation.get("parameters", [])
    )
    socket = operation.get("x-websocket")
    also = f"<p>As a WebSocket: {html.escape(socket)}</p>" if socket else ""
    title = f"<h3><code>{method.upper()} {html.escape(path)}</code></h3>"
    return f"{title}<p>{html.escape(operation['summary'])}</p><table>{rows}</table>{also}"


def _schema_html(name: str, schema: dict[str, Any]) -> str:
    text = msgspec.json.format(msgspec.json.encode(schema), indent=1).decode()
    return f"<details><summary><code>{html.escape(name)}</code></summary><pre>{html.escape(text)}</pre></details>"
