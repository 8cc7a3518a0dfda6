"""The socket that tells a run's output to a page: it closes with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from server_bed import API, LIMIT_S, ServerBed
from websockets.sync.client import connect

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.store.event_log import EventWriter
from jupyter_gpu_release.store.layout import RunPaths


@pytest.fixture
def store(server: ServerBed) -> Path:
    return HomePaths(server.folder / "gpu-home").store


def _told(server: ServerBed, run: str) -> list[dict[str, Any]]:
    """All that the output's socket says until the server closes it."""
    url = f"{server.url.replace('http', 'ws', 1)}{API}/runs/{run}/output?token={server.token}"
    with connect(url, proxy=None, open_timeout=LIMIT_S) as socket:
        return [json.loads(message) for message in socket]


@pytest.mark.slow("the first of a module starts a server")
def test_only_of_a_run_that_nobody_knows_it_is_said_that_it_is_gone(server: ServerBed, store: Path) -> None:
    """What may pass ends the socket, and takes nothing out of the document; a fault of ours is in the log."""
    run = "20261122-000000-abcdef00"
    (gone,) = _told(server, run)
    assert "not known here" in gone["gone"]
    paths = RunPaths.of(store, run)
    paths.manifest.parent.mkdir(parents=True)
    paths.manifest.write_text("{")
    (refused,) = _told(server, run)
    assert "damaged" in refused["problem"]
    paths.manifest.write_text('{"schema_version": 1, "run": "x", "user": "ada", "state": "succeeded"}')
    log = EventWriter(paths.events)
    log.write([Event(1, 0.0, "stream", {"text": 1})])
    log.close()
    (fault,) = _told(server, run)
    assert list(fault) == ["problem"]
    assert f"the output of run {run} cannot be shown" in server.log()
