"""Fifty short calls on four GPUs: how much of the time the GPUs are busy, and how a fresh Ray actor each does.

``launch_map`` makes many calls in each of four processes; further rows say what a process for each costs, which is
cores: on two of them four GPUs want 32 calls a second, 62 ms for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ..bed import Bed
from ..report import Report

GPUS, FUNCTION_S = 4, 0.1

_SCRIPT = """
import json, sys, time
import jupyter_gpu_release as gpu_release
def work(seconds):
    began = time.time()
    time.sleep(seconds)
    return began, time.time()
count, seconds, own = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:] == ["own"]
gpu_release.launch(work, 0.0).result()
if own:
    runs = [gpu_release.launch(work, seconds) for _ in range(count)]
else:
    runs = gpu_release.launch_map(work, [seconds] * count)
print(json.dumps([run.result() for run in runs]))
"""


def add_rows(report: Report, cluster: Bed, *, quick: bool) -> None:
    """``launch_busy`` and its variants, and ``actor_busy``, in percent; the ratio is ours ÷ theirs."""
    count, rounds = (4, 1) if quick else (50, 9)
    _launched(cluster, count)  # Ray starts the workers that make leases: as many as there are GPUs, on two cores
    ours = report.add("launch_busy", [_busy(_launched(cluster, count)) for _ in range(rounds)], unit="%")
    report.add("launch_busy_own_process", [_busy(_launched(cluster, count, FUNCTION_S, "own"))], unit="%")
    report.add("launch_busy_1s_own_process", [_busy(_launched(cluster, 4 if quick else 24, 1.0, "own"))], unit="%")
    theirs = report.add("actor_busy", [_busy(_actors(cluster, count))], unit="%")
    report.ratios["launch_busy_over_actor"] = ours / theirs


def _launched(cluster: Bed, count: int, seconds: float = FUNCTION_S, *mode: str) -> list[tuple[float, float]]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(count), str(seconds), *mode],
        cwd=cluster.work,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [tuple(span) for span in json.loads(done.stdout.splitlines()[-1])]


def _actors(cluster: Bed, count: int) -> list[tuple[float, float]]:
    address = cluster.connection()["ray_address"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.competitors", "short_actors", address, str(count)],
        env={**os.environ, **cluster.ray_environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [tuple(span) for span in json.loads(done.stdout.splitlines()[-1])["short_actors"]]


def _busy(spans: list[tuple[float, float]]) -> float:
    """Of the GPUs' time from the first function's beginning to the last one's end, in percent."""
    whole_s = max(end for _, end in spans) - min(began for began, _ in spans)
    return 100 * sum(end - began for began, end in spans) / (GPUS * whole_s)
