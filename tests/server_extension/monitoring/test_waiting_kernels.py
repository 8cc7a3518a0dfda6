"""Kernels that wait for runs on a real cluster are at work: for our policy, for Jupyter's own culling, for a Hub."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_kernel_bed import ServerKernel, audit

from jupyter_gpu_release.client.autostart import Ready

from ..conftest import StartServer

pytestmark = pytest.mark.thorough

Until = Callable[[Callable[[], object], str], None]
Open = Callable[..., ServerKernel]
#: Jupyter's own culling is on, but has no kernel in mind yet
JUPYTERS_OWN = {"MappingKernelManager": {"cull_idle_timeout": 3600, "cull_interval": 1, "cull_connected": True}}
#: both limits: an hour until a test's scene is set (kernels may take long to start), then so short that any wait
#: outlasts them; Jupyter's is what the server may stand still for without our telling it that a kernel is at work
_LONG: dict[str, Any] = {"GpuCuller": {"cull_idle_timeout": 3600}, "MappingKernelManager": {"cull_idle_timeout": 3600}}
_SHORT: dict[str, Any] = {"GpuCuller": {"cull_idle_timeout": 3}, "MappingKernelManager": {"cull_idle_timeout": 7}}
_TOUCHING = {"warn", "release", "shutdown"}


@pytest.fixture
def open_kernel(cluster: Ready, start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(Path(cluster.connection.token_file).parent))
    kernels: list[ServerKernel] = []

    def opened(other: dict[str, Any] | None = None, **policy: Any) -> ServerKernel:
        home = {"JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)}
        config = {"GpuRelease": {"poll_interval": 0.3}} | (other or {})
        bed, gpus = start_server(config, environment=home, **_LONG["GpuCuller"] | policy)
        kernels.append(ServerKernel(bed, gpus))
        kernels[-1].run("%load_ext jupyter_gpu_release\nanswer = None")
        return kernels[-1]

    yield opened
    for kernel in kernels:
        kernel.close()


def _held_back(folder: Path) -> tuple[Path, str]:
    """A file, and the text of a cell that goes on until it is there."""
    file = folder / "go-on"
    return file, f"import os, time\nwhile not os.path.exists({str(file)!r}): time.sleep(0.05)\nx = 42"


def _activity(kernel: ServerKernel) -> str:
    """When a Hub believes that this server was last used."""
    return str(kernel.bed.http.get("/api/status").json()["last_activity"])


def test_a_cell_that_waits_for_its_run_outlives_jupyters_own_culling(
    open_kernel: Open, tmp_path: Path, until: Until
) -> None:
    other = JUPYTERS_OWN | {"MappingKernelManager": JUPYTERS_OWN["MappingKernelManager"] | {"cull_busy": True}}
    kernel = open_kernel(other, action="shutdown", save_before_shutdown=False)
    kernel.holds()
    file, text = _held_back(tmp_path)
    kernel.begin(f"%%gpu_train\n{text}")
    until(lambda: kernel.bed.get("status")["cluster"]["runs"], "the run")
    kernel.bed.set(**_SHORT)
    _outlives(10, kernel)
    kernel.bed.set(**_LONG)
    before_s = time.monotonic()
    file.touch()
    until(lambda: not kernel.row()["busy"], "the run's end")
    assert (kernel.row()["idle_s"] or 0) <= time.monotonic() - before_s  # its clock starts at the run's end
    kernel.bed.set(**_SHORT)
    until(lambda: not kernel.alive, "somebody's culling of what is idle now")


def test_runs_in_the_background_keep_their_kernels(open_kernel: Open, tmp_path: Path, until: Until) -> None:
    """Their cells are over at once, so only the gateway knows that the kernels wait; a notebook has another's name."""
    kernel = open_kernel(JUPYTERS_OWN, action="shutdown", save_before_shutdown=False)
    file, text = _held_back(tmp_path)
    _submit(kernel, "--async", text, until)
    detached = ServerKernel(kernel.bed, kernel.gpus, path="detached.ipynb")
    _submit(detached, "--detach", text, until)
    namesake = ServerKernel(kernel.bed, kernel.gpus, path="other/a.ipynb")
    until(lambda: "its run" not in namesake.row()["why"], "the namesake's own state")
    before = _activity(kernel)
    kernel.bed.set(**_SHORT)
    _outlives(10, kernel, detached)
    assert _activity(kernel) > before
    until(lambda: not namesake.alive, "the end of a notebook of the same name, whose run it is not")
    file.touch()
    until(lambda: not kernel.bed.get("status")["cluster"]["runs"], "the runs' end")
    until(lambda: not kernel.alive and not detached.alive, "somebody's culling of what is idle now")
    namesake.close()
    detached.close()


def _submit(kernel: ServerKernel, option: str, text: str, until: Until) -> None:
    load = "%load_ext jupyter_gpu_release\n"
    kernel.run(f"{load}get_ipython().run_cell_magic('gpu_train', {option!r}, {text!r})\nanswer = None")
    until(lambda: "its run" in kernel.row()["why"], "the run to count as work")
    kernel.holds()


def _outlives(seconds: float, *kernels: ServerKernel) -> None:
    """Some limits' length goes by, Jupyter's and ours, and nobody touches these kernels."""
    deadline, ids = time.monotonic() + seconds, {kernel.id for kernel in kernels}
    while time.monotonic() < deadline:
        assert all(kernel.alive for kernel in kernels), kernels[0].bed.log()[-3000:]
        touched = [entry for entry in audit(kernels[0].bed) if entry["action"] in _TOUCHING]
        assert not [entry for entry in touched if entry["subject"] in ids]
        time.sleep(0.2)
    assert all(kernel.row()["busy"] for kernel in kernels)
