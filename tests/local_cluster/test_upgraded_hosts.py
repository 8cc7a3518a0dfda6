"""A rolling upgrade over several hosts, from a protocol that is one lower: kernels and nodes of both versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from earlier_version import OLD_VERSION, ONE_APART, REPOSITORY, install_earlier, replace_with_ours
from far_bed import GPUS_EACH, FarBed
from kernel_bed import RemoteNotebook, Shown
from network_hosts import Network
from soak import ONLY_IN_SOAK

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.protocol.session import PROTOCOL

# a wheel, and a cluster of its own over several hosts: `test_upgrade.py` has the same on one
pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough, ONLY_IN_SOAK]
_WHERE = "%%gpu_train\nimport jupyter_gpu_release, socket\nthere = jupyter_gpu_release._version.__version__"
_VERSIONS = """from jupyter_gpu_release.client.config import configured_target
from jupyter_gpu_release.client.rest import GatewayClient
with GatewayClient.for_target(configured_target()) as gateway:
    versions = sorted({node.version for node in gateway.checks().nodes})
"""
_COUNT = """%%gpu_train --gpus {gpus}
import pathlib, socket, time
host = socket.gethostname()
last, go = 0, pathlib.Path({go!r})
while not go.exists():
    print(last, flush=True)
    time.sleep(0.05)
    last += 1
print(last)
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the version before, in a folder."""
    return install_earlier(tmp_path_factory.mktemp("before"), ONE_APART)


@pytest.fixture
def installed(earlier: Path, tmp_path: Path) -> Path:
    """The package that head and nodes have."""
    return Path(shutil.copytree(earlier, tmp_path / "installed"))


@pytest.fixture
def bed(installed: Path, tmp_path: Path) -> Iterator[FarBed]:
    with Network("laptop", "head", "node-a", "node-b") as network:
        bed = FarBed(network, tmp_path, installed)
        try:
            bed.start()
            yield bed
        finally:
            bed.stop()


def _kernel(bed: FarBed, folder: Path, libraries: Path) -> RemoteNotebook:
    folder.mkdir()
    return RemoteNotebook(bed.network["laptop"], folder, bed.kernel_environment(PYTHONPATH=str(libraries)))


def _numbers(shown: Shown) -> list[int]:
    return [int(line) for line in shown.lines() if line.isdecimal()]


def _begin(notebook: RemoteNotebook, go: Path) -> str:
    cell = notebook.begin(_COUNT.format(go=str(go), gpus=GPUS_EACH))
    notebook.until(lambda shown: "20" in shown.lines())
    return cell


def test_cells_on_two_nodes_outlive_the_upgrade_and_kernels_of_both_protocols_are_served(
    bed: FarBed, earlier: Path, installed: Path, until: Callable[..., None], tmp_path: Path
) -> None:
    before, after = _kernel(bed, tmp_path / "before", earlier), _kernel(bed, tmp_path / "after", REPOSITORY)
    kernels = {before: PROTOCOL - 1, after: PROTOCOL}
    try:
        for notebook, protocol in kernels.items():
            notebook.ok("import jupyter_gpu_release.protocol.session as session")
            assert notebook.value("session.PROTOCOL") == protocol
            notebook.ok(_WHERE)
            assert notebook.value("there") == OLD_VERSION
        go = tmp_path / "go"
        cells = {notebook: _begin(notebook, go) for notebook in kernels}

        replace_with_ours(installed)
        said = bed.carry_out("head", "jupyter gpu start --upgrade")
        assert f"version {__version__} now, {OLD_VERSION} before" in said
        for notebook in kernels:
            seen = len(notebook.until(lambda shown: True).lines())
            notebook.until(lambda shown, seen=seen: len(shown.lines()) > seen + 20)
        go.touch()
        for notebook, cell in cells.items():
            shown = notebook.end(cell)
            assert shown.status == "ok", shown.traceback
            assert _numbers(shown) == list(range(notebook.value("last") + 1)), "each line once, in order"
        assert {notebook.value("host") for notebook in kernels} == {"node-a", "node-b"}

        until(lambda: _versions_of_agents(after) == [__version__], "the agents' own upgrade")
        for notebook, protocol in kernels.items():
            notebook.ok(_WHERE)
            assert notebook.value("there") == __version__
            notebook.ok("%%gpu_train --gpus 4 --ranks 2 --nodes 2\nboth = 1")
            assert notebook.value("session.PROTOCOL") == protocol
    finally:
        for notebook in kernels:
            notebook.close()


def _versions_of_agents(notebook: RemoteNotebook) -> object:
    """Asked without a cell: an agent is made anew only where nothing runs."""
    notebook.ok(_VERSIONS)
    return notebook.value("versions")
