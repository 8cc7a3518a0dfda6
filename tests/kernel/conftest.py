"""Real kernels that talk to a gateway that plays scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import script_gateway
from kernel_outputs import Kernel
from kernel_pool import KernelPool
from script_gateway import TOKEN, FakeGateway

from jupyter_gpu_release.kernel import connection
from jupyter_gpu_release.kernel.runs import follow
from jupyter_gpu_release.store.run_folders import make_store


@pytest.fixture
def graph_of() -> Callable[..., dict[str, Any]]:
    """Makes the arguments for :meth:`FakeRun.end` that bring values home."""
    return script_gateway.graph_of


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    """A gateway on a port of its own."""
    store = tmp_path / "store"
    make_store(store)
    fake = FakeGateway(store)
    yield fake
    fake.close()


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Environment in which nothing of this machine's user is read or written."""
    folders = {
        name: str(tmp_path / name.lower())
        for name in ("JUPYTER_GPU_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR")
    }
    return {**folders, "JUPYTER_GPU_URL": "", "JUPYTER_GPU_TOKEN": "", "JUPYTER_GPU_STORE": ""}


@pytest.fixture
def environment(home: dict[str, str], gateway: FakeGateway) -> dict[str, str]:
    """Environment of a kernel that is to use the fake gateway."""
    return {**home, "JUPYTER_GPU_URL": gateway.url, "JUPYTER_GPU_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def kernels() -> Iterator[KernelPool[Kernel]]:
    """What :func:`kernel` takes from."""
    pool = KernelPool(Kernel)
    yield pool
    pool.close()


@pytest.fixture
def take_kernel(kernels: KernelPool[Kernel], tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Kernel]]:
    """Kernels with an environment of the test's own and the extension loaded."""
    folder, taken = tmp_path / "notebooks", list[Kernel]()
    folder.mkdir(exist_ok=True)

    def take(environment: dict[str, str]) -> Kernel:
        taken.append(kernels.take(environment, folder))
        return taken[-1]

    yield take
    for kernel in taken:
        kernels.give_back(kernel)


@pytest.fixture
def kernel(take_kernel: Callable[[dict[str, str]], Kernel], environment: dict[str, str]) -> Kernel:
    """A kernel that is to use the fake gateway."""
    return take_kernel(environment)


@pytest.fixture
def hush() -> Iterator[Callable[[Kernel], None]]:
    """``hush(kernel)``: stages of any length pass without a word, for tests that count what a cell shows.

    A busy machine makes any stage last so long that it is said.
    """
    hushed: list[Kernel] = []

    def make(kernel: Kernel) -> None:
        hushed.append(kernel)
        assert kernel.run(_QUIET.format(3600, 3600, 3600)).reply["status"] == "ok"

    yield make
    for kernel in hushed:
        kernel.run(_QUIET.format(connection._QUIET_S, follow._QUIET_S, follow._QUIET_WAITING_S))


_QUIET = """
from jupyter_gpu_release.kernel import connection; from jupyter_gpu_release.kernel.runs import follow
connection._QUIET_S, follow._QUIET_S, follow._QUIET_WAITING_S = {}, {}, {}
del connection, follow
"""


@pytest.fixture
def make_kernel(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Kernel]]:
    """New kernels, for what a process does once; without the extension."""
    made: list[Kernel] = []

    def make(environment: dict[str, str]) -> Kernel:
        made.append(Kernel(environment, tmp_path))
        return made[-1]

    yield make
    for kernel in made:
        kernel.close()


@pytest.fixture(scope="module")
def plain_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel for tests that reach no gateway."""
    folder = tmp_path_factory.mktemp("plain")
    names = ("JUPYTER_GPU_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR")
    started = Kernel({**{name: str(folder / name) for name in names}, "JUPYTER_GPU_URL": "http://127.0.0.1:9"}, folder)
    try:
        assert started.run("%load_ext jupyter_gpu_release").reply["status"] == "ok"
        yield started
    finally:
        started.close()
