"""Plain scripts that launch functions on the session's cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from functions_bed import Script, StartScript

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import Target, find_gateway
from jupyter_gpu_release.client.rest import GatewayClient

_HEAD = """
import json, os, signal, sys, time
import jupyter_gpu_release as gpu_release
from jupyter_gpu_release import gpu, launch
"""


@pytest.fixture
def environment(cluster: Ready) -> dict[str, str]:
    """In which scripts find the session's cluster."""
    return {"JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[StartScript]:
    """Starts a script in a folder of its own."""
    made: list[subprocess.Popen[str]] = []

    def begin(text: str) -> Script:
        path = tmp_path / f"script_{len(made)}.py"
        path.write_text(_HEAD + text)
        process = subprocess.Popen(
            [sys.executable, str(path)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        made.append(process)
        return Script(process)

    yield begin
    for process in made:
        process.kill()
        process.communicate()


@pytest.fixture
def gateway(environment: dict[str, str]) -> Iterator[GatewayClient]:
    """The cluster's gateway, to look at runs from outside."""
    target: Target | None = find_gateway(environment={**os.environ, **environment})
    assert target is not None
    with GatewayClient.for_target(target) as client:
        yield client
