"""What goes wrong around a real server: clocks, drivers, GPUs, tabs, kernels, settings.

Nothing busy is ever touched, and what is idle is acted on as soon as that can be said for certain.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvml_bed import FakeGpus
from server_bed import ServerBed
from server_kernel_bed import ServerKernel, audit, never_for, nothing_before
from soak import cases
from websockets.sync.client import connect

from ..conftest import StartServer

pytestmark = pytest.mark.thorough

Until = Callable[[Callable[[], object], str], None]
Open = Callable[..., ServerKernel]
_TOUCHING = {"release", "suspend", "shutdown"}
#: folder of a notebook → the policy for it, so that one server serves all scenes
_POLICIES: dict[str, dict[str, Any]] = {
    "jump": {"cull_idle_timeout": 0},
    "tabs": {"cull_connected": False},
    "still": {"cull_idle_timeout": 8, "warn_before": 6},
    "died": {"cull_idle_timeout": 5},
}


def _overrides(policies: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"path": f"{folder}/*", **policy} for folder, policy in policies.items()]


@pytest.fixture(scope="module")
def bed_and_gpus(start_shared: StartServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[ServerBed, FakeGpus]:
    """A server that ends what is idle, and whose clock can jump."""
    folder = tmp_path_factory.mktemp("clock")
    library, ahead = folder / "jump_clock.so", folder / "ahead"
    source = Path(__file__).parents[2] / "harness" / "jump_clock.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    ahead.write_text("0")
    clock = {"LD_PRELOAD": str(library), "JUMP_CLOCK": str(ahead)}
    policy = {"action": "shutdown", "save_before_shutdown": False}
    return start_shared(None, clock, **policy, overrides=_overrides(_POLICIES))


@pytest.fixture
def open_kernel(bed_and_gpus: tuple[ServerBed, FakeGpus]) -> Iterator[Open]:
    kernels: list[ServerKernel] = []

    def opened(folder: str = "any") -> ServerKernel:
        kernels.append(ServerKernel(*bed_and_gpus, path=f"{folder}/{len(kernels)}.ipynb"))
        return kernels[-1]

    yield opened
    for kernel in kernels:
        kernel.close()
        if bed_and_gpus[0].process.poll() is None:
            kernel.end()
    bed_and_gpus[1].let_go()


def _ended(kernel: ServerKernel) -> bool:
    return not kernel.alive


def test_a_lost_gpu_spares_its_holders_and_no_others(open_kernel: Open, until: Until) -> None:
    """It is lost in the middle of a sample: the one GPU could be read, the other could not."""
    first, second = open_kernel(), open_kernel()
    assert first.gpus is not None
    pids = [kernel.run(f"{first.gpus.open_device}\nimport os; answer = os.getpid()") for kernel in (first, second)]
    both = [f"process {gpu} {pid} 1000 0" for gpu, pid in enumerate(pids)]
    # both are shown at work until both are known, so that neither is acted on too soon
    first.gpus.show(*(line.replace(" 1000 0", " 1000 90") for line in both), used=1000)
    until(lambda: first.row()["used_bytes"] == second.row()["used_bytes"] == 1000, "the memory of both")
    first.gpus.show(*both, "lost 1", used=1000)
    until(lambda: _ended(first), "the end of the idle one on the good GPU")
    never_for(4, first.bed, _TOUCHING, second.id)
    assert second.alive
    assert "GPU 1" in second.row()["why"]


def test_an_open_idle_tab_protects_only_where_the_operator_says_so(open_kernel: Open, until: Until) -> None:
    kernel, spared = open_kernel(), open_kernel("tabs")
    assert kernel.gpus is not None
    pids = [each.run(f"{kernel.gpus.open_device}\nimport os; answer = os.getpid()") for each in (kernel, spared)]
    sockets = [_open_tab(each) for each in (kernel, spared)]
    kernel.gpus.show(*(f"process 0 {pid} 1000 0" for pid in pids), used=2000)
    until(lambda: _ended(kernel), "the end of what is idle behind an open tab")
    assert spared.row()["connections"] == 1
    until(lambda: "open in 1 tab" in spared.row()["reason"], "the reason why the other one is spared")
    for socket in sockets:
        socket.close()
    until(lambda: _ended(spared), "its end once the tab is closed")


def _actions(kernel: ServerKernel) -> list[str]:
    return [entry["action"] for entry in audit(kernel.bed) if entry["subject"] == kernel.id]


def _open_tab(kernel: ServerKernel) -> Any:
    url = kernel.bed.url.replace("http", "ws") + f"/api/kernels/{kernel.id}/channels"
    return connect(url, additional_headers={"Authorization": f"token {kernel.bed.token}"}, proxy=None)


def test_a_server_that_stood_still_looks_again_before_it_acts(open_kernel: Open, until: Until) -> None:
    """A cell was begun meanwhile; the server hears of it only now."""
    kernel = open_kernel("still")
    kernel.holds()
    until(lambda: "warn" in _actions(kernel), "the warning")
    kernel.bed.process.send_signal(signal.SIGSTOP)
    try:
        kernel.begin("import time; time.sleep(1000)")
        began_s = time.monotonic()
        until(lambda: time.monotonic() - began_s > 10, "a pause longer than every limit")
    finally:
        kernel.bed.process.send_signal(signal.SIGCONT)
    until(lambda: "a cell is running" in kernel.row()["why"], "the running cell")
    never_for(4, kernel.bed, _TOUCHING, kernel.id)
    assert kernel.alive


def test_kernels_that_restart_or_die_are_let_be_and_harm_no_others(open_kernel: Open, until: Until) -> None:
    kernel, other = open_kernel("died"), open_kernel("died")
    pid = other.holds()
    victim = int(kernel.run("import os; answer = os.getpid()"))
    assert kernel.gpus is not None
    kernel.gpus.show(f"process 0 {victim} 1000 90", f"process 0 {pid} 1000 0", used=2000)
    os.kill(victim, signal.SIGKILL)  # Jupyter restarts it by itself, under the same id
    until(lambda: kernel.row()["used_bytes"] == 0, "the old process to be forgotten")
    until(lambda: _ended(other), "the end of the idle one beside it")
    assert kernel.alive
    assert not _TOUCHING & {*_actions(kernel)}
    assert kernel.bed.get("health")["ok"]


def test_wrong_settings_are_said_so_and_nobody_is_acted_on(tmp_path: Path) -> None:
    """Which values are wrong is tested in ``test_overrides.py``."""
    wrong = {"GpuCuller": {"cull_idle_timeout": "1h"}, "GpuRelease": {"poll_interval": 0}}
    bed = ServerBed(tmp_path, wrong)
    status = bed.get("status")
    for problem, words in zip(status["problems"], ("cull_idle_timeout", "poll_interval"), strict=False):
        assert words in problem["message"]
        assert "correct c.Gpu" in problem["mend"]
    assert status["policy"]["in_words"] == "kernels that hold a GPU are never acted on"
    bed.stop()
    assert "Traceback" not in bed.log()
    assert bed.log().count("CRITICAL") + bed.log().count("[C ") >= 2


def test_a_server_without_gpu_and_cluster_says_so_in_one_line(tmp_path: Path, until: Until) -> None:
    bed = ServerBed(tmp_path)
    until(lambda: "GPUs: none on this machine" in bed.log(), "the line")
    status = bed.get("status")
    assert (status["gateway"]["state"], status["cluster"]) == ("none", None)
    assert "jupyter gpu start" in status["gateway"]["mend"]
    assert bed.get("runs")["runs"] == []  # a normal state, not a fault
    assert bed.get("health")["ok"] is True
    assert not Path(bed.environment["JUPYTER_GPU_HOME"]).exists()  # nothing is started by looking
    bed.stop()
    assert "Traceback" not in bed.log()
    ours = [line for line in bed.log().splitlines() if "GPU" in line or "NVML" in line]
    assert len(ours) == 1, ours
    assert "no cluster (no GPU cluster is configured" in ours[0]


@pytest.mark.parametrize("jump_s", cases([864_000], [-864_000]))
def test_a_clock_that_jumps_neither_hastens_nor_stops_the_policy(open_kernel: Open, until: Until, jump_s: int) -> None:
    kernel = open_kernel("jump")
    kernel.holds()
    until(lambda: not kernel.row()["busy"] and kernel.row()["used_bytes"] == 1000, "idleness")
    asked_s, idle_s = time.monotonic(), kernel.row()["idle_s"]
    limit_s = int(idle_s) + 9
    Path(kernel.bed.environment["JUMP_CLOCK"]).write_text(str(jump_s))
    kernel.bed.set(GpuCuller={"overrides": _overrides({"jump": {"cull_idle_timeout": limit_s}})})
    # the warning comes 1 s ahead
    nothing_before(asked_s + limit_s - 1.5 - idle_s, kernel.bed, {*_TOUCHING, "warn"}, kernel.id)
    until(lambda: _ended(kernel), "the end of what is idle")
    (*_, last) = [entry for entry in audit(kernel.bed) if entry["subject"] == kernel.id]
    assert abs(last["at"] - time.time() - jump_s) < 600  # the jump was seen, and did no harm


def test_a_driver_that_hangs_blocks_nobody_and_nothing_is_touched(open_kernel: Open, until: Until) -> None:
    """The last one: it ends the server."""
    kernel = open_kernel()
    pid = kernel.holds(share=90)  # at work until the driver hangs
    until(lambda: kernel.row()["used_bytes"] == 1000, "the memory")
    assert kernel.gpus is not None
    kernel.gpus.show(f"process 0 {pid} 1000 0", "hang", used=1000)
    until(lambda: "has not answered" in str(kernel.bed.get("status")["problems"]), "the problem, after ten seconds")
    never_for(0.1, kernel.bed, _TOUCHING, kernel.id)
    assert kernel.row()["busy"]
    kernel.gpus.show(f"process 0 {pid} 1000 0", used=1000)
    until(lambda: _ended(kernel), "the end of what is idle, once the driver answers")
    kernel.gpus.show("hang")
    until(lambda: kernel.bed.get("health")["sample_age_s"] > 2, "the look that hangs")
    kernel.bed.process.terminate()
    assert kernel.bed.process.wait(60) is not None  # a server ends all the same
