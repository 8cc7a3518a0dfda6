"""A rolling upgrade: a gateway of a newer version takes over while a cell runs; it serves kernels of both versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from earlier_version import (
    BEFORE_ATTEMPTS,
    EARLIER,
    OLD_VERSION,
    PACKAGE,
    REPOSITORY,
    install_earlier,
    replace_with_ours,
)
from kernel_bed import Notebook
from soak import cases

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient

# a wheel, and a cluster of its own
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]


@pytest.fixture(scope="module", params=cases(["--restartable"], [""]))
def options(request: pytest.FixtureRequest) -> str:
    """Of the cell that is under way: the oldest version knows none of several attempts."""
    return str(request.param)


@pytest.fixture(scope="module")
def earlier(options: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the version before, in a folder."""
    return install_earlier(tmp_path_factory.mktemp("before"), BEFORE_ATTEMPTS if options else EARLIER)


@pytest.fixture
def open_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Notebook]]:
    """Start a kernel that has the package of a folder."""
    opened: list[Notebook] = []

    def start(libraries: Path) -> Notebook:
        monkeypatch.setenv("PYTHONPATH", str(libraries))
        opened.append(Notebook(tmp_path))
        return opened[-1]

    yield start
    for notebook in opened:
        notebook.close()


def _gpu(libraries: Path, *words: str) -> str:
    """``jupyter gpu`` of the package in a folder."""
    command = [sys.executable, "-m", f"{PACKAGE}.cli", *words]
    environment = os.environ | {"PYTHONPATH": str(libraries), "JUPYTER_GPU_PRELOAD": "json"}
    done = subprocess.run(command, cwd=libraries, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_LONG = """%%gpu_train {options}
import time, pathlib
for i in range(100_000):
    print(i, flush=True)
    time.sleep(0.02)
    if pathlib.Path({gate!r}).exists():
        break
where = "the cell of before"
"""


#: could have a second attempt, which agents of before do not tell from the first
_AGAIN = """%%gpu_train --retries 1
import jupyter_gpu_release
there = jupyter_gpu_release._version.__version__
"""


def test_a_newer_gateway_takes_over_a_running_cell(
    earlier: Path,
    options: str,
    own_home: HomePaths,
    open_kernel: Callable[[Path], Notebook],
    until: Callable[..., None],
    tmp_path: Path,
) -> None:
    installed, gate = tmp_path / "installed", tmp_path / "gate"
    shutil.copytree(earlier, installed)
    _gpu(installed, "start", "--simulated-gpus", "2")
    connection = own_home.read_connection()
    assert connection is not None
    assert connection.version == OLD_VERSION
    before, after = open_kernel(earlier), open_kernel(REPOSITORY)
    after.ok("%%gpu_train\nimport jupyter_gpu_release\nthere = jupyter_gpu_release._version.__version__")
    assert (after.value("there"), after.value("jupyter_gpu_release._version.__version__")) == (OLD_VERSION, __version__)
    cell = before.begin(_LONG.format(gate=str(gate), options=options))
    before.until(lambda shown: "20" in shown.lines())

    replace_with_ours(installed)
    assert f"`{'jupyter gpu start --upgrade'}`" in _gpu(installed, "start")
    said = _gpu(installed, "start", "--upgrade")
    assert f"version {__version__} now, {OLD_VERSION} before" in said
    with GatewayClient.for_target(target_of(connection)) as gateway:
        assert gateway.health().version == __version__
        after.ok("%%gpu_train\nbeside = 1")  # on the node whose agent is still the old one
        again = after.begin(_AGAIN)
        after.until(lambda shown: "a node agent of this version" in str(shown.displays()))
        seen = before.until(lambda shown: True).lines()
        before.until(lambda shown: len(shown.lines()) > len(seen) + 20)
        gate.touch()
        shown = before.end(cell)
        assert shown.status == "ok", shown.traceback
        numbers = [int(line) for line in shown.lines() if line.isdecimal()]
        assert numbers == list(range(len(numbers))), "each line once, in order"
        assert before.value("where") == "the cell of before"
        assert after.end(again).status == "ok"
        assert after.value("there") == __version__

        until(lambda: {node.version for node in gateway.checks().nodes} == {__version__}, "the agent's own upgrade")
    for notebook in (before, after):
        notebook.ok("%%gpu_train\nimport jupyter_gpu_release\nthere = jupyter_gpu_release._version.__version__")
        assert notebook.value("there") == __version__
    assert before.value("jupyter_gpu_release._version.__version__") == OLD_VERSION
    _gpu(installed, "stop", "--yes")
