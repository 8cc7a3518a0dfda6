"""Kernels that use the session's cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel_bed import Notebook
from kernel_pool import KernelPool

from jupyter_gpu_release.client.autostart import Ready


@pytest.fixture(scope="module", autouse=True)
def _use_the_sessions_cluster(cluster: Ready) -> Iterator[None]:
    # per module: it must hold in setUpClass, too
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_HOME", str(Path(cluster.connection.token_file).parent))
        yield


@pytest.fixture(scope="module")
def notebooks() -> Iterator[KernelPool[Notebook]]:
    """What :func:`open_notebook` takes from."""
    pool = KernelPool(lambda _environment, folder: Notebook(folder, load=False))
    yield pool
    pool.close()


@pytest.fixture
def open_notebook(notebooks: KernelPool[Notebook], tmp_path: Path) -> Iterator[Callable[[], Notebook]]:
    """``open_notebook()``: one more kernel, with the extension loaded, in this test's folder."""
    taken: list[Notebook] = []

    def start() -> Notebook:
        taken.append(notebooks.take({}, tmp_path))
        return taken[-1]

    yield start
    for notebook in taken:
        notebooks.give_back(notebook)


@pytest.fixture
def notebook(open_notebook: Callable[[], Notebook]) -> Notebook:
    """A kernel with the extension loaded."""
    return open_notebook()
