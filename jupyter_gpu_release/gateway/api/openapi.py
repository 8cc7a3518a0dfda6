"""The gateway's interface as OpenAPI 3.1, made from the route table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...openapi_builder import ERROR_FACTS, Operation, document
from .route import Route

_ERROR = {"type": "object", "required": ["error"], "properties": {"error": ERROR_FACTS}}


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document."""
    return document(
        map(_operation, routes),
        info={"title": "jupyter_gpu_release gateway"},
        error=_ERROR,
        token={"type": "http", "scheme": "bearer"},
    )


def _operation(route: Route) -> Operation:
    socket = (route.socket.__doc__ or "").strip() if route.socket is not None else ""
    return Operation(
        route.method, route.path, route.summary, route.response, route.body, route.query, route.status, socket=socket
    )
