"""The gateway's REST interface for a program with an event loop (the Jupyter server)."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import httpx
import msgspec

from ..core.documents import Health, LeaseExtension, RunRow, RunsDocument, StatusDocument, WarmRow
from .answers import LOOPBACK, read_answer, safe_path
from .discovery import Target
from .unreachable import unreachable

T = TypeVar("T")


class AsyncGatewayClient:
    """Each coroutine is one request. Raises as :class:`~.rest.GatewayClient` does; never starts a cluster."""

    def __init__(self, target: Target, *, timeout_s: float = 10.0) -> None:
        self.target = target
        self._timeout_s = timeout_s
        loopback = (httpx.URL(target.url).host or "") in LOOPBACK
        self._client = httpx.AsyncClient(
            base_url=target.url.rstrip("/"),
            headers={"Authorization": f"Bearer {target.token}"},
            timeout=timeout_s,
            trust_env=not loopback,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def health(self) -> Health:
        """Whether the gateway can take runs now."""
        return await self._ask("GET", "/v1/health", Health)

    async def status(self) -> StatusDocument:
        """Who holds what, who waits and why."""
        return await self._ask("GET", "/v1/status", StatusDocument)

    async def next_status(self, after: str, wait_s: float) -> tuple[StatusDocument, float]:
        """The status once its ``serial`` is another than ``after``, at the latest after ``wait_s`` seconds.

        Also the seconds that the gateway waited. A gateway that does not know of serials answers at once.
        """
        path, parameters = "/v1/status", {"after": after, "wait_ms": round(wait_s * 1000)}
        response = await self._send("GET", path, parameters=parameters, patience_s=wait_s)
        status = read_answer(self.target.url, path, response, StatusDocument, configured=self.target.configured)
        return status, _waited_s(response.headers.get("Server-Timing", ""))

    async def runs(self, limit: int = 100, *, mine: bool = False) -> RunsDocument:
        """The newest runs first, the caller's own (``mine``) or all."""
        parameters = {"limit": limit} | ({"mine": "true"} if mine else {})
        return await self._ask("GET", "/v1/runs", RunsDocument, parameters=parameters)

    async def cancel(self, run: str, *, kill: bool = False) -> RunRow:
        """End a run: an interrupt first, the second time (or with ``kill``) a kill."""
        parameters = {"kill": "true"} if kill else {}
        return await self._ask("POST", f"/v1/runs/{safe_path(run)}/cancel", RunRow, parameters=parameters)

    async def release_lease(self, lease: str) -> WarmRow:
        """End a warm lease."""
        return await self._ask("POST", f"/v1/leases/{safe_path(lease)}/release", WarmRow)

    async def extend_lease(self, lease: str, keep_s: float) -> WarmRow:
        """Keep a warm lease for ``keep_s`` seconds from now, as far as the gateway allows."""
        body = LeaseExtension(keep_s)
        return await self._ask("POST", f"/v1/leases/{safe_path(lease)}/extend", WarmRow, body=body)

    async def _ask(
        self, method: str, path: str, kind: type[T], *, parameters: dict[str, Any] | None = None, body: Any = None
    ) -> T:
        response = await self._send(method, path, parameters=parameters, body=body)
        return read_answer(self.target.url, path, response, kind, configured=self.target.configured)

    async def _send(
        self, method: str, path: str, *, parameters: dict[str, Any] | None = None, body: Any = None,
        patience_s: float = 0.0,
    ) -> httpx.Response:  # fmt: skip
        """``patience_s``: how much longer than usual the answer may take."""
        content = None if body is None else msgspec.json.encode(body)
        timeout = httpx.Timeout(self._timeout_s, read=self._timeout_s + patience_s)
        try:
            return await self._client.request(method, path, params=parameters, content=content, timeout=timeout)
        except httpx.HTTPError as error:
            raise unreachable(self.target.url, error, configured=self.target.configured) from error


def _waited_s(server_timing: str) -> float:
    """From ``wait;dur=12.3`` (milliseconds); 0 where the gateway does not tell."""
    found = re.search(r"\bwait;dur=(\d+(?:\.\d+)?)", server_timing)
    return float(found[1]) / 1000 if found is not None else 0.0
