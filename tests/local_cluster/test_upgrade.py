"""A rolling upgrade: the gateway of a newer version takes over while a cell runs; kernels of both versions are served.

The version before is a wheel that is built from an earlier commit, with a lower number. Where the clone does not have
that commit (a shallow one) it is built from this tree, with a lower protocol, too.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel_bed import Notebook

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.session import PROTOCOL

pytestmark = pytest.mark.timeout(480)  # a wheel, and a cluster of its own
_REPOSITORY = Path(__file__).parents[2]
#: what stands for the version before: the next release puts its own there
_EARLIER = "89e3d041"
_OLD_VERSION = "0.0.9"
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
_PACKAGE = "jupyter_gpu_release"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the version before, installed from its wheel."""
    folder = tmp_path_factory.mktemp("before")
    sources, libraries = folder / "sources", folder / "libraries"
    archive = subprocess.run(["git", "archive", _EARLIER], cwd=_REPOSITORY, capture_output=True, timeout=60)
    if archive.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(sources, filter="data")
    else:
        _copy_of_this_tree(sources)
    (sources / _PACKAGE / "_version.py").write_text(f'"""Of the version before."""\n\n__version__ = "{_OLD_VERSION}"\n')
    build = [*_PIP, "wheel", "--quiet", "--no-deps", "-w", folder, sources]
    subprocess.run(build, env=os.environ | {"SKIP_JUPYTER_BUILDER": "1"}, check=True, timeout=240)
    (wheel,) = folder.glob("*.whl")
    install = [*_PIP, "install", "--quiet", "--no-deps", "--no-index", "--target", libraries, wheel]
    subprocess.run(install, check=True, timeout=120)
    return libraries


def _copy_of_this_tree(sources: Path) -> None:
    """This version, with a protocol that is one lower."""
    shutil.copytree(_REPOSITORY / _PACKAGE, sources / _PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("install.json", "jupyter-config", "docs"):
        whole = _REPOSITORY / name
        shutil.copytree(whole, sources / name) if whole.is_dir() else shutil.copy(whole, sources / name)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(_REPOSITORY / name, sources / name)
    file = sources / _PACKAGE / "protocol" / "session.py"
    lowered, count = re.subn(r"^PROTOCOL = \d+$", f"PROTOCOL = {PROTOCOL - 1}", file.read_text(), flags=re.MULTILINE)
    assert count == 1
    file.write_text(lowered)


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
    command = [sys.executable, "-m", f"{_PACKAGE}.cli", *words]
    environment = os.environ | {"PYTHONPATH": str(libraries), "JUPYTER_GPU_PRELOAD": "json"}
    done = subprocess.run(command, cwd=libraries, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_LONG = """%%gpu_train
import time, pathlib
for i in range(100_000):
    print(i, flush=True)
    time.sleep(0.02)
    if pathlib.Path({gate!r}).exists():
        break
where = "the cell of before"
"""


def test_a_newer_gateway_takes_over_a_running_cell(
    earlier: Path,
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
    assert connection.version == _OLD_VERSION
    before, after = open_kernel(earlier), open_kernel(_REPOSITORY)
    after.ok("%%gpu_train\nimport jupyter_gpu_release\nthere = jupyter_gpu_release._version.__version__")
    assert (after.value("there"), after.value("jupyter_gpu_release._version.__version__")) == (
        _OLD_VERSION,
        __version__,
    )
    cell = before.begin(_LONG.format(gate=str(gate)))
    before.until(lambda shown: "20" in shown.lines())

    shutil.rmtree(installed / _PACKAGE)
    shutil.copytree(_REPOSITORY / _PACKAGE, installed / _PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    assert f"`{'jupyter gpu start --upgrade'}`" in _gpu(installed, "start")
    said = _gpu(installed, "start", "--upgrade")
    assert f"version {__version__} now, {_OLD_VERSION} before" in said
    with GatewayClient.for_target(target_of(connection)) as gateway:
        assert gateway.health().version == __version__
        after.ok("%%gpu_train\nbeside = 1")  # on the node whose agent is still the old one
        seen = before.until(lambda shown: True).lines()
        before.until(lambda shown: len(shown.lines()) > len(seen) + 20)
        gate.touch()
        shown = before.end(cell)
        assert shown.status == "ok", shown.traceback
        numbers = [int(line) for line in shown.lines() if line.isdecimal()]
        assert numbers == list(range(len(numbers))), "each line once, in order"
        assert before.value("where") == "the cell of before"

        until(lambda: {node.version for node in gateway.checks().nodes} == {__version__}, "the agent's own upgrade")
    for notebook in (before, after):
        notebook.ok("%%gpu_train\nimport jupyter_gpu_release\nthere = jupyter_gpu_release._version.__version__")
        assert notebook.value("there") == __version__
    assert before.value("jupyter_gpu_release._version.__version__") == _OLD_VERSION
    _gpu(installed, "stop")
