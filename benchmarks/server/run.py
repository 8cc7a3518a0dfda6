"""The Jupyter server extension under load: 200 kernels on 64 GPUs, its cost, and how soon it acts.

The GPUs are those of the fake NVML library under the real pynvml, the kernels are sleeping processes, so that what is
measured is sampling, matching, deciding and answering, not 200 Python interpreters. The rest is a real Jupyter server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from ..report import Report

_BEDS = Path(__file__).parents[2] / "tests" / "harness"
KERNELS, GPUS = 200, 64
_API = "/jupyter-gpu-release/api"


def run(*, quick: bool) -> Report:
    """Measure; ``quick``: seconds instead of a minute."""
    sys.path.insert(0, str(_BEDS))
    report = Report("server")
    with tempfile.TemporaryDirectory() as name, _sleepers(Path(name)) as pids, _server(Path(name), pids) as (bed, gpus):
        _wait(lambda: len(bed.get("kernels")["kernels"]) == KERNELS, "the kernels to be watched")
        _add_idle_cost(report, bed, 5 if quick else 60)
        _add_status(report, bed, 100 if quick else 1000)
        _add_own_figures(report, bed)
        _add_reaction(report, bed, gpus, pids, 1 if quick else 10)
    report.notes.append(f"{KERNELS} sleeping processes as kernels, {GPUS} fake GPUs, sampled every 2 s")
    report.notes.append(
        "targets: cpu ≤ 3 % of a core, loop ≤ 20 ms, policy pass ≤ 10 ms, status p95 ≤ 15 ms, acted ≤ 3 s"
    )
    return report


@contextmanager
def _sleepers(folder: Path) -> Iterator[list[int]]:
    """Processes that wait for the end of a pipe whose other end is here: they go however this process ends."""
    waiting, lifeline = os.pipe()
    children = [_sleeper(waiting, f"k{number}") for number in range(KERNELS)]
    os.close(waiting)
    (folder / "pids").write_text(json.dumps([child.pid for child in children]))
    try:
        yield [child.pid for child in children]
    finally:
        os.close(lifeline)
        for child in children:
            child.wait()


def _sleeper(waiting: int, kernel: str) -> subprocess.Popen[bytes]:
    """``kernel``: whose process it says that it is, as those that a server starts do."""
    mark = os.environ | {"JUPYTER_GPU_KERNEL": kernel}
    return subprocess.Popen(["cat"], stdin=waiting, stdout=subprocess.DEVNULL, start_new_session=True, env=mark)


@contextmanager
def _server(folder: Path, pids: list[int]) -> Iterator[tuple[object, object]]:
    from nvml_bed import FakeGpus, build_library
    from server_bed import ServerBed

    library = folder / "library"
    library.mkdir()
    gpus = FakeGpus(build_library(library), folder / "gpus", GPUS)
    gpus.show(*(f"process {number % GPUS} {pid} 1000 90" for number, pid in enumerate(pids)), used=4000)
    culler = {
        "cull_idle_timeout": 4,
        "warn_before": 0,
        "cull_interval": 2,
        "sample_interval": 2,
        "samples": 1,
        "device_files": ["/"],
        "audit_log": str(folder / "audit.jsonl"),
    }
    environment = gpus.environment | {
        "JUPYTER_GPU_BENCH_PIDS": str(folder / "pids"),
        "PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}",
    }
    extensions = {"jupyter_gpu_release": True, "benchmarks.server.crowd": True, "jupyterlab": False}
    bed = ServerBed(
        folder / "server", {"GpuCuller": culler, "ServerApp": {"jpserver_extensions": extensions}}, environment
    )
    try:
        yield bed, gpus
    finally:
        bed.stop()


def _add_idle_cost(report: Report, bed, seconds: float) -> None:  # type: ignore[no-untyped-def]
    process = psutil.Process(bed.process.pid)
    values = []
    for _ in range(max(1, int(seconds / 5))):
        before, began_s = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(5)
        values.append((sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began_s) * 100)
    report.add("cpu", values, "% of a core")
    bed.http.post("/jupyter-gpu-bench/loop")
    time.sleep(seconds / 2)
    report.add("loop_blocked", bed.http.get("/jupyter-gpu-bench/loop").json())


def _add_status(report: Report, bed, count: int) -> None:  # type: ignore[no-untyped-def]
    """50 requests a second from 8 browsers, each sent at its time whether or not the one before is answered."""
    own = threading.local()
    start_s = time.monotonic() + 0.5

    def ask(number: int) -> float:
        if not hasattr(own, "client"):  # connections are kept, as browsers do
            own.client = httpx.Client(base_url=bed.url, headers=bed.http.headers, trust_env=False, verify=False)
            own.client.get(f"{_API}/status").raise_for_status()
        time.sleep(max(0.0, start_s + number / 50 - time.monotonic()))
        began_s = time.perf_counter()
        own.client.get(f"{_API}/status").raise_for_status()
        return (time.perf_counter() - began_s) * 1000

    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(ask, range(count)))
    report.add("status", values)


def _add_own_figures(report: Report, bed) -> None:  # type: ignore[no-untyped-def]
    text = bed.http.get("/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("jupyter_gpu_"))
    for metric, name in (("policy_pass", "policy_pass"), ("sample", "sample")):
        total, count = (float(figures[f"jupyter_gpu_{name}_seconds_{end}"]) for end in ("sum", "count"))
        report.add(metric, [total / count * 1000])


def _add_reaction(report: Report, bed, gpus, pids: list[int], count: int) -> None:  # type: ignore[no-untyped-def]
    """From the limit of a GPU that fell idle to the notice about it. It may come before: the idle time begins at the
    last sample that saw it busy, up to 2 s earlier.
    """
    late = []
    for turn in range(count):
        lines = [f"process {number % GPUS} {pid} 1000 {0 if number == turn else 90}" for number, pid in enumerate(pids)]
        before = _notices(bed)
        gpus.show(*lines, used=4000)
        idle_s = time.time()
        _wait(lambda before=before: len(_notices(bed)) > len(before), "the notice")
        late.append((_notices(bed)[-1]["at"] - idle_s - 4) * 1000)
    report.add("acted_after_limit", late)


def _notices(bed) -> list[dict[str, float]]:  # type: ignore[no-untyped-def]
    path = bed.folder.parent / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _wait(condition, what: str) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited a minute for {what} ({os.getloadavg()[0]:.1f} load)")
        time.sleep(0.1)
