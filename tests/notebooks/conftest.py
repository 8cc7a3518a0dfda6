"""Kernels that use the session's cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel_bed import Notebook

from jupyter_gpu_release.client.autostart import Ready


@pytest.fixture(scope="module", autouse=True)
def _use_the_sessions_cluster(cluster: Ready) -> Iterator[None]:
    # per module: it must hold in setUpClass, too
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_GPU_HOME", str(Path(cluster.connection.token_file).parent))
        yield


@pytest.fixture
def open_notebook(tmp_path: Path) -> Iterator[Callable[[], Notebook]]:
    """``open_notebook()``: one more kernel, with the extension loaded, in this test's folder."""
    made: list[Notebook] = []

    def start() -> Notebook:
        made.append(Notebook(tmp_path))
        return made[-1]

    yield start
    for notebook in made:
        notebook.close()


@pytest.fixture
def notebook(open_notebook: Callable[[], Notebook]) -> Notebook:
    """A kernel with the extension loaded."""
    return open_notebook()
