"""A gateway with users: their tokens, their runs, and each one's way to any route."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray_bed import GatewayBed
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.gateway.api.route import Route
from jupyter_gpu_release.gateway.api.route_table import ROUTES

SOCKET_ROUTES = [route for route in ROUTES if route.socket is not None]


@dataclass
class Team:
    """A gateway, tokens by name, and two runs of ann's: one over, one that goes on."""

    bed: GatewayBed
    secrets: dict[str, str]
    over: str
    held: str

    def headers(self, who: str, **more: str) -> dict[str, str]:
        secret = self.secrets.get(who)
        return ({"Authorization": f"Bearer {secret}"} if secret else {}) | more

    def path(self, route: Route, run: str) -> str:
        path = route.path.replace("{run}", run)
        path = path.replace("{lease}", "jgr-none").replace("{name}", "0" * 16)  # there are none
        path = path.replace("{digest}", "sha256:" + "0" * 64)
        assert "{" not in path, f"say here what stands for the parameter of {route.path}"
        return path

    def ask(self, who: str, route: Route, run: str, **headers: str) -> httpx.Response:
        url = self.bed.url + self.path(route, run)
        with _http() as http:
            return http.request(route.method, url, headers=self.headers(who, **headers))

    def post(self, who: str, path: str, body: Any = None) -> httpx.Response:
        with _http() as http:
            return http.post(self.bed.url + path, headers=self.headers(who), json=body)

    def open(self, who: str, route: Route, run: str, **headers: str) -> ClientConnection:
        url = self.bed.url.replace("http", "ws", 1) + self.path(route, run)
        return connect(url, additional_headers=self.headers(who, **headers), proxy=None, open_timeout=60)

    def refused(self, who: str, route: Route, run: str, **headers: str) -> tuple[int, str]:
        """Status and code of the refused upgrade."""
        with pytest.raises(InvalidStatus) as refused, self.open(who, route, run, **headers):
            pass
        response = refused.value.response
        return response.status_code, json.loads(response.body)["error"]["code"]

    def rest(self, who: str) -> GatewayClient:
        return GatewayClient(self.bed.url, self.secrets[who], timeout_s=60.0)

    def audit(self) -> list[dict[str, Any]]:
        text = (Path(self.bed.config.home) / "log" / "audit.jsonl").read_text()
        for secret in self.secrets.values():
            assert secret not in text
        return [json.loads(line) for line in text.splitlines()]


def _http() -> httpx.Client:
    """For one request. To read the machine's certificates, which nobody needs here, takes each client 30 ms of CPU."""
    return httpx.Client(verify=False, trust_env=False, timeout=60)


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"
