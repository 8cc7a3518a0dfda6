"""Real Jupyter servers with the extension: without any GPU, and with fake GPUs and short limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nvml_bed import FakeGpus, build_library
from server_bed import ServerBed

from jupyter_gpu_release.client.autostart import Ready

#: limits of seconds instead of hours
FAST: dict[str, Any] = {
    "cull_idle_timeout": 3,
    "warn_before": 1,
    "cull_interval": 0.2,
    "sample_interval": 0.2,
    "samples": 3,
}


@pytest.fixture(scope="session")
def preload() -> str:
    """Torch and others would cost 5 s of CPU, and no cell here asks for them."""
    return "numpy"


StartServer = Callable[..., tuple[ServerBed, FakeGpus]]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBed]:
    """One for all: a server on a machine without GPU, driver and cluster, and without the button that starts one."""
    bed = ServerBed(tmp_path_factory.mktemp("server"), {"GpuRelease": {"auto_start": "never"}})
    yield bed
    bed.stop()


@pytest.fixture(scope="session")
def on_cluster(cluster: Ready, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBed]:
    """One for all beside the cluster. It looks so rarely that every change that is seen was told by the gateway."""
    home = str(Path(cluster.connection.token_file).parent)
    folder = tmp_path_factory.mktemp("on-cluster")
    policy = {
        "lease_idle_timeout": 30,
        "warn_before": 29,
        "cull_interval": 0.2,
        "sample_interval": 0.2,
        "samples": 1,
        "audit_log": str(folder / "audit.jsonl"),
    }
    bed = ServerBed(folder, {"GpuRelease": {"poll_interval": 3600}, "GpuCuller": policy}, {"JUPYTER_GPU_HOME": home})
    yield bed
    bed.stop()


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def start_server(nvml_library: Path, tmp_path: Path) -> Iterator[StartServer]:
    """``start_server(action=…)``: a server with two fake GPUs and a policy of seconds."""
    with _servers(nvml_library, tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def start_shared(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """The same for a server that a module's tests share: each test looks at kernels of its own."""
    with _servers(nvml_library, tmp_path_factory.mktemp("shared")) as start:
        yield start


@contextmanager
def _servers(library: Path, folder: Path) -> Iterator[StartServer]:
    beds: list[ServerBed] = []

    def start(
        other: dict[str, Any] | None = None, environment: dict[str, str] | None = None, **policy: Any
    ) -> tuple[ServerBed, FakeGpus]:
        own = folder / f"server-{len(beds)}"
        gpus = FakeGpus(library, folder / "gpus")
        culler = FAST | {"device_files": [str(gpus.device)], "audit_log": str(own / "audit.jsonl")} | policy
        bed = ServerBed(own, {"GpuCuller": culler} | (other or {}), gpus.environment | (environment or {}))
        beds.append(bed)
        return bed, gpus

    yield start
    for bed in beds:
        bed.stop()
