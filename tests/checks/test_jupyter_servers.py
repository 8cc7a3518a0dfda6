"""Jupyter servers that run here, by the files that they keep."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_gpu_release.checks import jupyter_servers
from jupyter_gpu_release.checks.jupyter_servers import check_jupyter_servers, running_servers


def _write(folder: Path, number: int, text: str = "", **facts: object) -> None:
    server = {"url": f"http://127.0.0.1:{number}/", "token": "t", "pid": os.getpid(), **facts}
    (folder / f"jpserver-{number}.json").write_text(text or json.dumps(server))


def test_only_servers_that_run_are_asked(tmp_path: Path) -> None:
    _write(tmp_path, 2)
    _write(tmp_path, 1, token="")
    _write(tmp_path, 3, pid=2**22 + 1)
    _write(tmp_path, 4, url="")
    _write(tmp_path, 5, text="{")
    assert [server.url for server in running_servers(tmp_path)] == ["http://127.0.0.1:1/", "http://127.0.0.1:2/"]


@pytest.mark.parametrize(
    ("token", "status", "words"),
    [("t", 404, "this extension is not loaded there"), ("", 403, "it tells this command nothing (HTTP 403)")],
)
def test_a_server_that_does_not_tell_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, status: int, words: str
) -> None:
    asked: list[dict[str, Any]] = []

    def get(url: str, **named: Any) -> httpx.Response:
        asked.append({"url": url, **named})
        return httpx.Response(status, text="no")

    monkeypatch.setattr(jupyter_servers.httpx, "get", get)
    _write(tmp_path, 7, token=token)
    (finding,) = check_jupyter_servers(tmp_path, 2.5)
    assert (finding.where, finding.finding.startswith(f"http://127.0.0.1:7/: {words}")) == ("server", True)
    assert asked[0]["url"] == "http://127.0.0.1:7/jupyter-gpu-release/api/doctor?only=server"
    assert (asked[0]["timeout"], asked[0]["trust_env"]) == (2.5, False)
    assert asked[0]["headers"] == ({"Authorization": "token t"} if token else {})
