"""Gangs over two simulated nodes, until all ranks run and until the lease is gone; launched functions."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import Connection

from ..bed import Bed, Kernel, bed, kernel
from ..report import Report
from . import launch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "harness"))
from second_node import SecondNode

RANKS = 8
_OPTIONS = f"--gpus {RANKS} --ranks {RANKS} --nodes 2"
_CELL = "import time; t_first = time.time()\nimport torch; assert float(torch.ones(8).sum()) == 8.0"
_CALL = (
    "import time\nt_call = time.time()\n"
    f"get_ipython().run_cell_magic('gpu_train', '{_OPTIONS} --gather t_first', {_CELL!r})"
)


def run(*, quick: bool) -> Report:
    """Measure; ``quick`` takes few repetitions, and does without the other ways to start a gang."""
    report = Report("gang")
    count = 1 if quick else 20
    with bed(own=not quick) as cluster:
        launch.add_rows(report, cluster, quick=quick)
        second = SecondNode(Ready(_connection(cluster), started=True), RANKS // 2)
        try:
            second.wait_until_up(RANKS)
            with kernel(cluster.work) as notebook:
                _ranks(notebook, 2)  # the first ones fill caches
                ours = report.add("all_ranks_first_statement", _ranks(notebook, count))
                report.add("last_rank_to_lease_gone", _gone(cluster, count, "released_s"))
                report.add("last_statement_to_lease_gone", _gone(cluster, count, "ended_s"))
            if not quick:
                _against_ray_train(cluster, report, ours, (2, RANKS))
        finally:
            second.kill()
    if not quick:
        _against_accelerate(report, ours, (3, RANKS))
    return report


def _connection(cluster: Bed) -> Connection:
    return msgspec.convert(cluster.connection(), Connection)


def _ranks(notebook: Kernel, count: int) -> list[float]:
    """Milliseconds from the call to the last rank's first statement; nobody holds a GPU before the call."""
    found = []
    for _ in range(count):
        notebook.run(_CALL)
        first: list[float] = notebook.value("t_first")
        if len(first) != RANKS:
            raise RuntimeError(f"{len(first)} of {RANKS} ranks ran")
        found.append((max(first) - notebook.value("t_call")) * 1000)
        time.sleep(0.25)
    return found


def _gone(cluster: Bed, count: int, since: str) -> list[float]:
    """To the lease's end: from that of the last rank's processes, or of its last statement (gathering is in it)."""
    runs: list[dict[str, Any]] = cluster.manifests(count)
    return [(run["gone_at"] - run["outcome"][since]) * 1000 for run in runs]


def _against_ray_train(cluster: Bed, report: Report, ours: float, size: tuple[int, int]) -> None:
    """``size``: how often, and with how many ranks."""
    environment = {**os.environ, **cluster.ray_environment(), "RAY_TRAIN_V2_ENABLED": "1"}
    address = str(cluster.connection()["ray_address"])
    theirs = _competitor(report, environment, "ray_train", address, *map(str, size))
    if theirs:
        report.ratios["ray_train"] = report.add("ray_train_first_statement", theirs) / ours


def _against_accelerate(report: Report, ours: float, size: tuple[int, int]) -> None:
    """``notebook_launcher`` starts its processes on this machine only, and without GPUs on the CPU."""
    if importlib.util.find_spec("accelerate") is None:
        report.notes.append("accelerate.notebook_launcher: skipped, accelerate is not installed here")
        return
    theirs = _competitor(report, dict(os.environ), "accelerate", "", *map(str, size))
    if theirs:
        report.ratios["accelerate"] = report.add("accelerate_first_statement", theirs) / ours


def _competitor(report: Report, environment: dict[str, str], kind: str, *arguments: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.gang.competitors", kind, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        report.notes.append(f"{kind}: skipped, it failed: {last[:300]}")
        return []
    values: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return values
