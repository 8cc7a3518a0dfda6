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
#: both limits: an hour until a test's scene is set (kernels may take long to start), then so short that any wait
#: outlasts them; Jupyter's is what the server may stand still for without our telling it that a kernel is at work
_LONG: dict[str, Any] = {"GpuCuller": {"cull_idle_timeout": 3600}, "MappingKernelManager": {"cull_idle_timeout": 3600}}
_SHORT: dict[str, Any] = {"GpuCuller": {"cull_idle_timeout": 3}, "MappingKernelManager": {"cull_idle_timeout": 7}}
_JUPYTERS: dict[str, Any] = _SHORT | {"GpuCuller": {"cull_idle_timeout": 0}}
_TOUCHING = {"warn", "release", "shutdown"}


@pytest.fixture
def open_kernel(cluster: Ready, start_server: StartServer) -> Iterator[Open]:
    """Kernels of a server beside the cluster, where Jupyter's own culling is on."""
    home = {"JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)}
    own = {**_LONG["MappingKernelManager"], "cull_interval": 1, "cull_connected": True, "cull_busy": True}
    config = {"GpuRelease": {"poll_interval": 0.3}, "MappingKernelManager": own}
    policy = {"action": "shutdown", "save_before_shutdown": False}
    bed, gpus = start_server(config, environment=home, **_LONG["GpuCuller"] | policy)
    kernels: list[ServerKernel] = []

    def opened(path: str) -> ServerKernel:
        kernels.append(ServerKernel(bed, gpus, path=path))
        return kernels[-1]

    yield opened
    for kernel in kernels:
        kernel.close()


def test_who_waits_for_a_run_or_works_in_the_background_is_not_culled(
    open_kernel: Open, tmp_path: Path, until: Until
) -> None:
    """One waits in its cell. The cells of two are over at once, so only the gateway knows that they wait; a notebook
    has another's name. One has a GPU that is busy. Jupyter's own culling takes them when they are idle.
    """
    file = tmp_path / "go-on"
    text = f"import os, time\nwhile not os.path.exists({str(file)!r}): time.sleep(0.05)\nx = 42"
    cell, in_background, detached, working = (open_kernel(f"{name}.ipynb") for name in ("a", "b", "c", "d"))
    pid = working.holds(share=80)
    _submit(in_background, "--async", text, until)
    _submit(detached, "--detach", text, until)
    namesake = open_kernel("other/b.ipynb")
    until(lambda: "its run" not in namesake.row()["why"], "the namesake's own state")
    until(lambda: "80% busy" in working.row()["why"], "the busy GPU")
    cell.run("%load_ext jupyter_gpu_release\nanswer = None")
    cell.holds()
    cell.begin(f"%%gpu_train\n{text}")
    until(lambda: len(cell.bed.get("status")["cluster"]["runs"]) == 3, "the runs")
    before = _activity(cell)
    cell.bed.set(**_SHORT)
    _outlive(10, cell, in_background, detached, working)
    assert _activity(cell) > before
    until(lambda: not namesake.alive, "the end of a notebook of the same name, whose run it is not")

    cell.bed.set(**_LONG)
    before_s = time.monotonic()
    file.touch()
    until(lambda: not cell.row()["busy"], "the run's end")
    assert (cell.row()["idle_s"] or 0) <= time.monotonic() - before_s  # its clock starts at the run's end
    until(lambda: not cell.bed.get("status")["cluster"]["runs"], "the runs' end")
    assert working.gpus is not None
    working.gpus.hold(pid, 1000, 0)
    cell.bed.set(**_JUPYTERS)
    waited = (cell, in_background, detached, working)
    until(lambda: not any(kernel.alive for kernel in waited), "Jupyter's own culling of what is idle now")


def _activity(kernel: ServerKernel) -> str:
    """When a Hub believes that this server was last used."""
    return str(kernel.bed.http.get("/api/status").json()["last_activity"])


def _submit(kernel: ServerKernel, option: str, text: str, until: Until) -> None:
    load = "%load_ext jupyter_gpu_release\n"
    kernel.run(f"{load}get_ipython().run_cell_magic('gpu_train', {option!r}, {text!r})\nanswer = None")
    until(lambda: "its run" in kernel.row()["why"], "the run to count as work")
    kernel.holds()


def _outlive(seconds: float, *kernels: ServerKernel) -> None:
    """Some limits' length goes by, Jupyter's and ours, and nobody touches these kernels."""
    deadline, ids = time.monotonic() + seconds, {kernel.id for kernel in kernels}
    while time.monotonic() < deadline:
        assert all(kernel.alive for kernel in kernels), kernels[0].bed.log()[-3000:]
        touched = [entry for entry in audit(kernels[0].bed) if entry["action"] in _TOUCHING]
        assert not [entry for entry in touched if entry["subject"] in ids]
        time.sleep(0.2)
    assert all(kernel.row()["busy"] for kernel in kernels)
