"""The policy on real servers and kernels: what is idle is warned of and acted on; nothing at work ever is."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_bed import stand_in_program
from nvml_bed import FakeGpus
from server_bed import ServerBed
from server_kernel_bed import ServerKernel, audit, never_for

from ..conftest import StartServer

Until = Callable[[Callable[[], object], str], None]
Open = Callable[..., ServerKernel]
_TOUCHING = {"release", "suspend", "shutdown"}
_LIBRARY = """
import sys, types
cupy = types.ModuleType("cupy")
cupy.held = 4000
class Pool:
    def total_bytes(self): return cupy.held
    def free_all_blocks(self): cupy.held = 100
pool = Pool()
cupy.get_default_memory_pool = lambda: pool
cupy.get_default_pinned_memory_pool = lambda: pool
sys.modules["cupy"] = cupy
secret = [1, 2, 3]
answer = None
"""


#: folder of a notebook → the policy for it, so that one server serves all scenes
_POLICIES: dict[str, dict[str, Any]] = {
    "release": {"action": "release", "warn_before": 2},
    "keep": {"action": "shutdown", "cull_idle_timeout": 3600, "warn_before": 3600},
    "silent": {"action": "shutdown", "max_busy_time": 4},
    "notify": {"action": "notify"},
    "shutdown": {"action": "shutdown"},
    "dry": {"action": "shutdown", "dry_run": True},
    "prod": {"action": "shutdown"},
    "suspend": {"action": "suspend"},
    "person": {"cull_idle_timeout": 0},
}


@pytest.fixture(scope="module")
def bed_and_gpus(start_shared: StartServer) -> tuple[ServerBed, FakeGpus]:
    return start_shared(action="suspend", overrides=_overrides(_POLICIES), protected=["path:prod/*"])


def _overrides(policies: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"path": f"{folder}/*", **policy} for folder, policy in policies.items()]


@pytest.fixture
def open_kernel(bed_and_gpus: tuple[ServerBed, FakeGpus]) -> Iterator[Open]:
    kernels: list[ServerKernel] = []

    def opened(folder: str) -> ServerKernel:
        kernels.append(ServerKernel(*bed_and_gpus, path=f"{folder}/{len(kernels)}.ipynb"))
        return kernels[-1]

    yield opened
    for kernel in kernels:
        kernel.end()


def _actions(kernel: ServerKernel) -> list[str]:
    return [entry["action"] for entry in audit(kernel.bed) if entry["subject"] == kernel.id]


def _wait(until: Until, kernel: ServerKernel, action: str) -> dict[str, Any]:
    until(lambda: action in _actions(kernel), f"the policy's {action}")
    found = [entry for entry in audit(kernel.bed) if entry["subject"] == kernel.id]
    return next(entry for entry in found if entry["action"] == action)


@pytest.mark.slow("it waits for the policy's times")
def test_an_idle_kernel_is_warned_of_and_its_libraries_let_go(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("release")
    kernel.run(_LIBRARY)
    kernel.holds()
    warned = _wait(until, kernel, "warn")
    assert (warned["rule"], warned["subject"], warned["path"], warned["gpus"]) == (
        "idle-warning",
        kernel.id,
        "release/0.ipynb",
        [0],
    )
    released = _wait(until, kernel, "release")
    assert released["at"] - warned["at"] >= 0.9  # warn_before is longer: the log may note the warning late
    assert released["done"], released
    assert "cupy let 3.8 KiB go" in released["result"]
    # the user's variables are as they were, and none was added
    assert kernel.run("answer = [cupy.held, secret, 'let_go' in dir(), len(Out)]") == [100, [1, 2, 3], False, 0]
    assert kernel.alive
    text = kernel.bed.http.get("/metrics").text
    assert 'jupyter_gpu_culls_total{action="release",done="true",dry_run="false",rule="idle-limit"}' in text


def test_keep_answers_the_warning(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("keep")
    kernel.holds()
    _wait(until, kernel, "warn")
    kept = kernel.bed.post(f"kernels/{kernel.id}/keep", {"keep_s": 600})
    assert (kept.status_code, kept.json()["keep_s"]) == (200, 600)
    until(lambda: (kernel.row()["kept_s"] or 0) > 500, "the promise in the row")
    short = _overrides(_POLICIES | {"keep": {"action": "shutdown"}})  # limits of seconds: without it they would strike
    kernel.bed.set(GpuCuller={"overrides": short})
    never_for(5, kernel.bed, _TOUCHING, kernel.id)
    assert kernel.alive
    assert kernel.row()["decision"] == "leave"
    assert _actions(kernel).count("keep") == 1


@pytest.mark.slow("nothing may happen for seconds")
def test_a_silent_long_cell_is_never_touched(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("silent")
    pid = kernel.opens()
    until(lambda: kernel.row()["why"] == "idle", "the kernel's answer")
    kernel.begin("import time; time.sleep(1000)")
    until(lambda: "a cell is running" in kernel.row()["why"], "the running cell")
    kernel.shows(pid)
    never_for(7, kernel.bed, _TOUCHING | {"warn"}, kernel.id)
    assert kernel.alive
    assert _wait(until, kernel, "notify")["rule"] == "max-busy"


def test_a_cell_that_just_ended_starts_the_clock(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("notify")
    kernel.holds()
    until(lambda: not kernel.row()["busy"] and kernel.row()["idle_s"] > 2, "two idle seconds")
    began_s = time.monotonic()
    kernel.run("answer = None")
    until(lambda: (kernel.row()["idle_s"] or 1e9) <= time.monotonic() - began_s, "the clock's new start")
    _wait(until, kernel, "notify")
    assert kernel.alive


def test_shutting_down_saves_the_variables_first(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("shutdown")
    kernel.run("x = {'a': 1}\nimport threading\nlock = threading.Lock()\nanswer = None")
    kernel.holds()
    done = _wait(until, kernel, "shutdown")
    assert done["done"], done
    assert "lock" in done["result"]  # what could not be saved is named
    until(lambda: not kernel.alive, "the kernel's end")
    (file,) = (kernel.bed.folder / "gpu-home" / "store" / "saved").glob("*.pkl")
    assert file.stat().st_mode & 0o077 == 0
    saved = pickle.loads(file.read_bytes())
    assert pickle.loads(saved["x"]) == {"a": 1}


def test_a_dry_run_only_says_so(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("dry")
    kernel.holds()
    said = _wait(until, kernel, "shutdown")
    assert (said["dry_run"], said["done"]) == (True, False)
    assert kernel.alive


def test_what_holds_no_gpu_and_what_is_protected_is_left_alone(open_kernel: Open, until: Until) -> None:
    kernel, other = open_kernel("shutdown"), open_kernel("prod")
    other.holds()
    never_for(6, kernel.bed, _TOUCHING | {"warn"}, kernel.id, other.id)
    until(lambda: other.row()["used_bytes"] == 1000, "the memory of the protected one")
    assert "protected" in other.row()["reason"]
    assert kernel.row()["reason"] == "holds no GPU memory"


def test_suspending_where_it_cannot_be_done_says_why(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("suspend")
    kernel.holds()
    tried = _wait(until, kernel, "suspend")
    assert tried["done"] is False
    assert "not available because" in tried["result"]
    assert kernel.bed.get("health")["suspend"].startswith("not available because")
    assert "suspend" in [problem["what"] for problem in kernel.bed.get("status")["problems"]]


@pytest.mark.thorough
def test_a_suspended_kernel_is_restored_when_a_cell_begins(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    stand_in_program(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    kernel = ServerKernel(*start_server(action="suspend"))
    pid = kernel.holds()
    done = _wait(until, kernel, "suspend")
    assert done["done"], done
    assert (folder / str(pid)).exists()
    until(lambda: kernel.row()["suspended"], "the row to say so")
    kernel.bed.set(GpuCuller={"cull_idle_timeout": 0})  # or it would be suspended again
    kernel.run("answer = None")
    assert _wait(until, kernel, "restore")["done"]
    assert not (folder / str(pid)).exists()
    until(lambda: not kernel.row()["suspended"], "the row to say so")
    kernel.close()


def test_a_person_may_release_at_any_time_but_not_below_a_running_cell(open_kernel: Open, until: Until) -> None:
    kernel = open_kernel("person")
    kernel.run(_LIBRARY)
    until(lambda: kernel.row()["why"] == "idle", "the kernel's answer")
    answer = kernel.bed.post(f"kernels/{kernel.id}/release")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["freed_bytes"], answer.json()["libraries"]) == (3900, ["cupy"])
    kernel.begin("import time; time.sleep(1000)")
    until(lambda: "a cell is running" in kernel.row()["why"], "the running cell")
    refused = kernel.bed.post(f"kernels/{kernel.id}/release")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert kernel.bed.post("kernels/0f0f/release").status_code == 404


def test_events_reach_a_front_end(open_kernel: Open, until: Until) -> None:
    from websockets.sync.client import connect

    kernel = open_kernel("release")
    url = kernel.bed.url.replace("http", "ws") + "/api/events/subscribe"
    with connect(url, additional_headers={"Authorization": f"token {kernel.bed.token}"}, proxy=None) as socket:
        kernel.holds()
        found: list[dict[str, Any]] = []
        while not any((event.get("action"), event.get("subject")) == ("warn", kernel.id) for event in found):
            found.append(json.loads(socket.recv(timeout=60)))
    schemas = {event["schema_id"] for event in found}
    assert "https://schema.jupyter-gpu-release.org/idle_policy/v1" in schemas
    assert "https://schema.jupyter-gpu-release.org/changed/v1" in schemas


@pytest.mark.thorough
def test_two_servers_on_one_gpu_mind_their_own_kernels(
    open_kernel: Open, start_server: StartServer, until: Until
) -> None:
    """Both see both processes; each acts on its own, the other's is unattributed."""
    first, second = open_kernel("release"), ServerKernel(*start_server(action="release"))
    pids = [kernel.opens() for kernel in (first, second)]
    for kernel in (first, second):
        assert kernel.gpus is not None
        kernel.gpus.show(*(f"process 0 {pid} 1000 0" for pid in pids), used=2000)
    for kernel in (first, second):
        assert _wait(until, kernel, "release")["subject"] == kernel.id
        other = second if kernel is first else first
        assert other.id not in [entry["subject"] for entry in audit(kernel.bed)]
        until(lambda bed=kernel.bed: bed.get("status")["gpus"][0]["unattributed_bytes"] == 1000, "the other's memory")
        assert kernel.alive
    second.close()
    assert first.gpus is not None
    first.gpus.let_go()
