"""The sidebar's button for a cluster of this machine: what it starts, when it refuses, what it leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from server_bed import API, ServerBed

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.config import GpuRelease
from jupyter_gpu_release.client.home import Connection, HomePaths
from jupyter_gpu_release.errors import ConflictError
from jupyter_gpu_release.local_cluster.start import stop_embedded
from jupyter_gpu_release.server_extension import local_start
from jupyter_gpu_release.server_extension.gateway import GatewayConnection, GatewayListener
from jupyter_gpu_release.server_extension.local_start import LocalStart

Until = Callable[[Callable[[], object], str], None]


@pytest.mark.thorough
def test_a_button_starts_a_cluster_and_one_that_was_killed_is_as_none(tmp_path: Path, until: Until) -> None:
    settings = {"start_options": ["--simulated-gpus", "2"], "poll_interval": 0.3}
    bed = ServerBed(tmp_path, {"GpuRelease": settings}, {"JUPYTER_GPU_PRELOAD": "numpy"})
    home = HomePaths(Path(bed.environment["JUPYTER_GPU_HOME"]))
    try:
        assert bed.get("status")["start"]["state"] == "possible"
        assert bed.post("cluster/start").json()["state"] == "starting"
        assert bed.post("cluster/start").json()["state"] == "starting"  # pressed twice, started once
        until(lambda: "Ray" in (bed.get("status")["start"] or {"step": "Ray"})["step"], "a step in words")
        until(lambda: bed.get("status")["cluster"], "the cluster")
        status = bed.get("status")
        assert (status["cluster"]["gpus"]["total"], status["start"]) == (2, None)
        refused = bed.post("cluster/start")
        assert refused.status_code == 409
        assert "runs on this machine already" in refused.json()["message"]

        daemon = psutil.Process(home.read_connection().daemon_pid)  # type: ignore[union-attr]
        os.kill(daemon.pid, signal.SIGKILL)
        until(lambda: bed.get("status")["gateway"]["state"] == "none", "a cluster that is gone")
        assert bed.get("status")["start"]["state"] == "possible"
        assert bed.http.get(f"{API}/runs").json()["runs"] == []
    finally:
        bed.stop()
        stop_embedded(home)


def _start(monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: Any) -> tuple[LocalStart, list[str]]:
    """A start in a home of its own, and the steps that it tells."""
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(folder))
    monkeypatch.setenv("JUPYTER_GPU_PRELOAD", "numpy")
    monkeypatch.delenv("JUPYTER_GPU_URL", raising=False)
    steps: list[str] = []

    class Listener(GatewayListener):
        def on_change(self) -> None:
            steps.append(start.facts().step)

    config = GpuRelease(**settings)
    start = LocalStart(config, GatewayConnection(config, Listener()), Listener())
    return start, steps


@pytest.mark.parametrize(
    "settings", [{"url": "https://gpu.example.org"}, {"auto_start": "never"}, {"user_tokens": "/etc/tokens"}]
)
@pytest.mark.asyncio
async def test_nothing_is_started_where_another_cluster_is_meant(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, _ = _start(monkeypatch, tmp_path, **settings)
    assert start.facts().state == "refused"
    assert start.facts().hint
    with pytest.raises(ConflictError):
        start.begin()
    assert not list(tmp_path.iterdir())


@pytest.mark.asyncio
async def test_a_start_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, _ = _start(monkeypatch, tmp_path, start_options=["--gpus", "99"])
    start.begin()
    assert start._task is not None
    await start._task
    facts = start.facts()
    assert (facts.state, "99" in facts.message) == ("failed", True)
    assert facts.hint
    assert start.begin().state == "starting"  # "Try again"
    await start.close()


async def _follow_words(words: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> LocalStart:
    """A start that ended, of a command that prints this expression."""
    start, _ = _start(monkeypatch, folder)
    command = [sys.executable, "-c", f"print({words})"]
    monkeypatch.setattr(local_start, "start_command", lambda options: command)
    start.begin()
    assert start._task is not None
    await start._task
    return start


@pytest.mark.parametrize("words", ["'usage: jupyter gpu start'", "'x' * (1 << 17)"])
@pytest.mark.asyncio
async def test_a_start_that_says_something_else_has_failed(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = (await _follow_words(words, monkeypatch, tmp_path)).facts()
    assert (facts.state, facts.hint != "") == ("failed", True)


@pytest.mark.asyncio
async def test_a_line_that_is_no_step_does_not_end_a_good_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection("http://127.0.0.1:1", str(tmp_path), str(tmp_path))
    ready = msgspec.json.encode(Ready(connection, started=True)).decode()
    start = await _follow_words(repr(f"a library's greeting\n{ready}"), monkeypatch, tmp_path)
    assert start.facts().state == "possible"


@pytest.mark.asyncio
async def test_a_server_that_ends_takes_its_half_made_cluster_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, steps = _start(monkeypatch, tmp_path, start_options=["--simulated-gpus", "1"])
    start.begin()
    async with asyncio.timeout(150):
        while not any("Ray" in step for step in steps):
            await asyncio.sleep(0.02)
    await start.close()
    assert HomePaths(tmp_path).read_connection() is None
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(tmp_path) in _line(process)]


def _line(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or [])
