"""Clusters that may be broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_bed import Cluster
from kernel_bed import Notebook
from kernel_pool import KernelPool

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all modules whose faults it survives."""
    home = HomePaths(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        # kernels are killed, others must come back in time after the gateway was
        patch.setenv("JUPYTER_GPU_RECONNECT_GRACE_S", "20")
        patch.setenv("JUPYTER_GPU_PRELOAD", "numpy")
        try:
            cluster = Cluster(start_embedded(home=home, asked=StartOptions(simulated=4), progress=print))
            cluster.placement_groups()  # what looks at them outlives the modules, too
            yield cluster
            cluster.close()
        finally:
            stop_embedded(home)


@pytest.fixture
def doomed(own_home: HomePaths) -> Cluster:
    """One for a fault that it does not survive."""
    return Cluster(start_embedded(home=own_home, asked=StartOptions(simulated=2), progress=print))


@pytest.fixture(scope="module")
def notebooks() -> Iterator[KernelPool[Notebook]]:
    """What :func:`open_notebook` takes from."""
    pool = KernelPool(lambda _environment, folder: Notebook(folder, load=False))
    yield pool
    pool.close()


@pytest.fixture
def open_notebook(
    notebooks: KernelPool[Notebook], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Cluster], Notebook]]:
    """``open_notebook(cluster)``: a kernel that uses it."""
    taken: list[Notebook] = []

    def start(cluster: Cluster) -> Notebook:
        monkeypatch.setenv("JUPYTER_GPU_HOME", str(cluster.home))
        taken.append(notebooks.take({}, tmp_path))
        return taken[-1]

    yield start
    for notebook in taken:
        notebooks.give_back(notebook)
