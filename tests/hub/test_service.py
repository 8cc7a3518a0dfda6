"""How many tokens a user gets from the Hub's service, and that it gets others later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from jupyter_gpu_release.hub import service
from jupyter_gpu_release.hub.config import LIFETIME_VARIABLE

_ENVIRONMENT = {
    "JUPYTERHUB_API_URL": "http://127.0.0.1:1/hub/api",
    "JUPYTER_GPU_URL": "http://127.0.0.1:9",
    "JUPYTER_GPU_TOKEN": "of an admin",
    LIFETIME_VARIABLE: "3600",
}


class _Gateway:
    """Gives whatever token it is asked for."""

    def __init__(self, *_: object, **_options: object) -> None:
        """Connects to nothing."""

    async def ask(self, _request: object, _asked: object) -> Any:
        return SimpleNamespace(secret="secret", token=SimpleNamespace(id="1"))

    async def close(self) -> None:
        """There is nothing to close."""


async def _holder_of(_hub_api: str, authorization: str) -> service._Holder:
    return service._Holder(authorization.removeprefix("token "), scopes=["access:servers"])


def test_a_user_gets_so_many_tokens_at_once_and_more_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(service, "_holder_of", _holder_of)
    monkeypatch.setattr(service, "AsyncGatewayClient", _Gateway)
    client = TestClient(service.app(_ENVIRONMENT))

    def ask(user: str) -> int:
        nonlocal said
        answer = client.post("/services/gpu-tokens/token", headers={"Authorization": f"token {user}"})
        said = answer.text
        return int(answer.status_code)

    said = ""
    assert [ask("ann") for _ in range(61)] == [201] * 60 + [429]
    assert "ann had 60 tokens within 10 minutes" in said
    assert "try again later" in said
    assert ask("bob") == 201, "a user's many servers are no other user's"
    now_s += 601.0
    assert ask("ann") == 201
