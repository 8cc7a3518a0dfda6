"""The token that a JupyterHub's service hands out: asked for, kept in a file, renewed, taken away at the end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from traitlets.config import LoggingConfigurable

from jupyter_gpu_release.server_extension import hub_token
from jupyter_gpu_release.server_extension.hub_token import HubToken


class _Service(ThreadingHTTPServer):
    """Hands out tokens ``t1``, ``t2`` …, while it is well."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.is_well, self.expires_s = True, 3600.0
        self.asked: list[str | None] = []


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        service: Any = self.server
        service.asked.append(self.headers["Authorization"])
        answer = {"token": f"t{len(service.asked)}", "expires_s": service.expires_s}
        if not service.is_well:
            answer = {"error": {"code": "forbidden", "message": "not for you", "mend": "ask"}}
        self.send_response(200 if service.is_well else 403)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Service]:
    with _Service() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("JUPYTER_GPU_HUB_SERVICE", f"http://127.0.0.1:{server.server_port}/tokens")
        monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "hub-secret")
        monkeypatch.setenv("JUPYTERHUB_SERVER_NAME", "big/one")
        monkeypatch.setenv("JUPYTER_GPU_TOKEN_FILE", "")
        yield server
        server.shutdown()
        thread.join()


def _kept(folder: Path, renewed: Callable[[], None] = lambda: None, *, has_other: bool = False) -> HubToken:
    return HubToken(str(folder), renewed, LoggingConfigurable(), has_other=has_other)


def _while_running(token: HubToken, look: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        running = asyncio.create_task(token.run())
        await asyncio.wait_for(token.tried.wait(), 60)
        await look()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


async def _until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.01)


def test_the_token_is_in_a_file_that_kernels_inherit_until_the_server_ends(service: _Service, tmp_path: Path) -> None:
    renewed: list[str] = []
    file = tmp_path / "jupyter_gpu_token-big%2Fone"
    token = _kept(tmp_path, lambda: renewed.append(file.read_text().strip()))
    assert token.is_wanted
    assert os.environ["JUPYTER_GPU_TOKEN_FILE"] == str(file)

    async def look() -> None:
        assert file.read_text().strip() == "t1"
        assert file.stat().st_mode & 0o777 == 0o600
        token.renew_now()
        await _until(lambda: len(renewed) == 2)

    _while_running(token, look)
    assert renewed == ["t1", "t2"]
    assert service.asked == ["token hub-secret"] * 2, "not before it is needed"
    assert not file.exists()


def test_a_token_is_renewed_at_half_of_its_time(service: _Service, tmp_path: Path) -> None:
    token = _kept(tmp_path)
    assert asyncio.run(token._renew()) == 1800.0


def test_a_service_that_refuses_is_said_and_asked_ever_less_often(service: _Service, tmp_path: Path) -> None:
    service.is_well = False
    token = _kept(tmp_path)
    pauses = [asyncio.run(token._renew()) for _ in range(8)]
    assert all(most * 0.8 <= pause <= most for pause, most in zip(pauses, [2, 4, 8, 16, 32, 60, 60, 60], strict=True))
    assert [(each.message, each.hint) for each in token.problems()] == [("not for you", "ask")]
    service.is_well = True
    asyncio.run(token._renew())
    assert token.problems() == []
    service.is_well = False
    assert asyncio.run(token._renew()) <= 2, "it begins anew"


def test_a_token_that_cannot_be_written_is_said_and_tried_again(
    service: _Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may be full for a while: here something is in the folder's place."""
    monkeypatch.setattr(hub_token, "_FIRST_BACKOFF_S", 0.1)
    folder = tmp_path / "runtime"
    token = _kept(folder)
    folder.touch()

    async def look() -> None:
        (problem,) = token.problems()
        assert str(folder) in problem.message
        folder.unlink()
        await _until(lambda: not token.problems())
        assert (folder / "jupyter_gpu_token-big%2Fone").read_text().strip() == f"t{len(service.asked)}"

    _while_running(token, look)


@pytest.mark.parametrize("variable", ["JUPYTER_GPU_TOKEN", "JUPYTER_GPU_TOKEN_FILE"])
def test_a_token_that_somebody_has_configured_goes_before(
    service: _Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    assert not _kept(tmp_path, has_other=True).is_wanted
    monkeypatch.setenv(variable, "mine")
    assert not _kept(tmp_path).is_wanted
    assert os.environ[variable] == "mine"


@pytest.mark.parametrize("variable", ["JUPYTER_GPU_HUB_SERVICE", "JUPYTERHUB_API_TOKEN"])
def test_without_a_service_or_a_hub_none_is_asked(
    service: _Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv(variable)
    assert not _kept(tmp_path).is_wanted
