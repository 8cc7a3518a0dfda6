"""A cluster with TLS on one host, a notebook on another: cells run there, are interrupted, and outlast a cut link."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from kernel_bed import RemoteNotebook, Shown
from network_hosts import Network
from ports import free_port
from soak import ONLY_IN_SOAK

from jupyter_gpu_release.client.home import HomePaths

pytestmark = [pytest.mark.timeout(480), pytest.mark.thorough, ONLY_IN_SOAK]  # a cluster of its own
_CLI = [sys.executable, "-m", "jupyter_gpu_release.cli"]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Network]:
    with Network("gateway", "laptop") as hosts:
        yield hosts


@pytest.fixture
def notebook(hosts: Network, own_home: HomePaths, tmp_path: Path) -> Iterator[RemoteNotebook]:
    authority = Authority(tmp_path / "certificates")
    cert, key = authority.sign("gateway", hosts["gateway"].address)
    port, store = str(free_port()), tmp_path / "store"
    place = ["--host", hosts["gateway"].address, "--port", port, "--store", str(store)]
    start = ["start", "--simulated-gpus", "1", "--progress-json", *place, "--tls-cert", cert, "--tls-key", key]
    environment = os.environ | {"JUPYTER_GPU_PRELOAD": "json"}
    done = subprocess.run(
        hosts["gateway"].command([*_CLI, *start]), env=environment, capture_output=True, text=True, timeout=300
    )
    ready = json.loads(done.stdout.splitlines()[-1])
    assert ready["kind"] == "ready", ready
    try:
        notebook = RemoteNotebook(
            hosts["laptop"],
            tmp_path,
            {
                "JUPYTER_GPU_URL": f"https://{hosts['gateway'].address}:{port}",
                "JUPYTER_GPU_TOKEN_FILE": str(own_home.token),
                "JUPYTER_GPU_CA_FILE": str(authority.file),
                "JUPYTER_GPU_HOME": str(tmp_path / "no-cluster-here"),
            },
        )
        try:
            yield notebook
        finally:
            notebook.close()
    finally:
        subprocess.run(hosts["gateway"].command([*_CLI, "stop", "--yes"]), capture_output=True, timeout=120, check=True)


def test_a_notebook_on_another_host(
    notebook: RemoteNotebook, hosts: Network, until: Callable[..., None], tmp_path: Path
) -> None:
    notebook.ok("n = 20")
    notebook.ok("%%gpu_train\nanswer = 2 * n + 2")
    assert notebook.value("answer") == 42

    cell = notebook.begin(
        "%%gpu_train\nfor i in range(100_000):\n    print(i, flush=True); __import__('time').sleep(0.05)"
    )
    notebook.until(lambda shown: len(shown.lines()) > 3)
    notebook.interrupt()
    shown = notebook.end(cell)
    assert shown.reply["ename"] == "KeyboardInterrupt", shown.traceback

    steps, go = tmp_path / "steps", tmp_path / "go"
    cell = notebook.begin(_STEPS.format(steps=str(steps), go=str(go)))
    notebook.until(lambda shown: "0" in shown.lines())
    hosts.cut(hosts["laptop"])
    before = _step(steps)
    until(lambda: _step(steps) > before + 50, "5 s of the cell's steps while the link is cut")
    seen = notebook.until(lambda shown: True)
    hosts.join(hosts["laptop"])
    go.touch()
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert len(seen.lines()) < before + 50, "the link was not cut"
    assert _numbers(shown) == list(range(notebook.value("last") + 1)), "each line once, in order"


_STEPS = """%%gpu_train
import pathlib, time
last = 0
while not pathlib.Path({go!r}).exists():
    print(last, flush=True)
    pathlib.Path({steps!r} + ".new").write_text(str(last))
    pathlib.Path({steps!r} + ".new").rename({steps!r})
    time.sleep(0.1)
    last += 1
print(last)
"""


def _step(file: Path) -> int:
    return int(file.read_text())


def _numbers(shown: Shown) -> list[int]:
    return [int(line) for line in shown.lines() if line.isdecimal()]
