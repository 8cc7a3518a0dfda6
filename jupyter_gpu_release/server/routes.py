"""The extension's routes below ``/jupyter-gpu-release/api/``; ``openapi.json`` beside this file describes them."""

from __future__ import annotations

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from ..errors import RequestError
from .answering import GpuHandler

BASE = "/jupyter-gpu-release/api"
_MOST_RUNS = 1000


class StatusHandler(GpuHandler):
    """Who holds what, who waits, what is missing."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET status."""
        self.answer(self.app.status())


class HealthHandler(GpuHandler):
    """Whether the extension itself works."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET health."""
        self.answer(self.app.health())


class RunsHandler(GpuHandler):
    """Runs of this server's user (all, for an administrator's token), newest first."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """GET runs."""
        text = self.get_query_argument("limit", "100")
        if not text.isdecimal() or not 0 < int(text) <= _MOST_RUNS:
            raise RequestError(f"limit={text[:20]!r} is not a number from 1 to {_MOST_RUNS}")
        self.answer(await self.app.gateway.ask(lambda client: client.runs(int(text))))


class CancelHandler(GpuHandler):
    """End a run: an interrupt first, the second time a kill."""

    @web.authenticated
    @authorized
    async def post(self, run: str) -> None:
        """POST runs/<id>/cancel."""
        row = await self.app.gateway.ask(lambda client: client.cancel(run))
        self.app.note("cancel", f"run {run}", self.current_user.username)
        self.answer(row)


class LeaseReleaseHandler(GpuHandler):
    """End a warm lease."""

    @web.authenticated
    @authorized
    async def post(self, lease: str) -> None:
        """POST leases/<id>/release."""
        answer = await self.app.gateway.ask(lambda client: client.release_lease(lease))
        self.app.note("release", f"lease {lease}", self.current_user.username)
        self.answer(answer)


class Extension(msgspec.Struct, frozen=True):
    """Body of ``leases/<id>/extend``: seconds from now."""

    keep_s: float = 1800.0


class LeaseExtendHandler(GpuHandler):
    """Keep a warm lease for longer."""

    @web.authenticated
    @authorized
    async def post(self, lease: str) -> None:
        """POST leases/<id>/extend."""
        wanted = self.body(Extension, Extension())
        if not 0 < wanted.keep_s <= 86400:
            raise RequestError(f"keep_s={wanted.keep_s:g} is not within 0 and 86400 seconds")
        answer = await self.app.gateway.ask(lambda client: client.extend_lease(lease, wanted.keep_s))
        self.app.note("extend", f"lease {lease}", self.current_user.username)
        self.answer(answer)


_ID = r"([\w-]+)"
#: path pattern (below the server's base URL) and handler
HANDLERS: list[tuple[str, type[APIHandler]]] = [
    (rf"{BASE}/status", StatusHandler),
    (rf"{BASE}/health", HealthHandler),
    (rf"{BASE}/runs", RunsHandler),
    (rf"{BASE}/runs/{_ID}/cancel", CancelHandler),
    (rf"{BASE}/leases/{_ID}/release", LeaseReleaseHandler),
    (rf"{BASE}/leases/{_ID}/extend", LeaseExtendHandler),
]
