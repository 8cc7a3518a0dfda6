"""Sweeps: overhead of a trial beside Ray Tune, how busy they keep GPUs, memory of trials, a deadline that arrives."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .bed import Bed, Kernel, bed, kernel
from .report import Report

_GPUS = 4
_SCRIPT = """
import json, os, time
import numpy
import jupyter_gpu_release as gpu_release

def anonymous():
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Anonymous:"))

def work(x, seconds, data=None):
    began = time.time()
    if data is not None:
        float(data.sum())
    time.sleep(seconds)
    return {"value": x, "span": (began, time.time())}

def work_and_measure(x, seconds, data=None):
    return {**work(x, seconds, data), "memory": anonymous()}

def spans(function=work, **keywords):
    sweep = gpu_release.sweep(function, {"x": (0.0, 1.0)}, **keywords)
    sweep.result()
    return [sweep.load(trial) for trial in sweep.trials["trial"]]

"""
_PARTS = {
    "overhead": 'found = [one["span"] for one in spans(seconds=0.1, trials=COUNT, max_gpus=1)]',
    "busy": 'found = [one["span"] for one in spans(seconds=1.0, trials=COUNT)]',
    "memory": """
plain = [one["memory"] for one in spans(work_and_measure, seconds=0.0, trials=1, max_gpus=1)]
data = numpy.ones(SIZE, dtype=numpy.uint8)
found = [plain, [one["memory"] for one in spans(work_and_measure, seconds=0.2, trials=COUNT, kwargs={"data": data})]]
""",
}
_DEADLINE = """
import time
import jupyter_gpu_release as gpu_release
def rounds(x):
    while True:
        gpu_release.checkpoint({"x": x})
        time.sleep(0.05)
holding = gpu_release.sweep(rounds, {"x": (0.0, 1.0)}, trials=64)
while sum(trial.word == "running" for trial in holding.all_trials) < 4:
    time.sleep(0.02)
"""
_CELL = """
import time
sent = time.time()
get_ipython().run_cell_magic("gpu_train", {options!r}, "first = time.time()")
"""
_URGENT = _CELL.format(options="--priority high --name deadline")


def run(*, quick: bool) -> Report:
    """Measure; ``quick`` takes few and small trials."""
    report = Report("sweep")
    with bed() as cluster:
        _add_overhead(report, cluster, 3 if quick else 32)
        _add_busy(report, cluster, 4 if quick else 64)
        _add_memory(report, cluster, count=2 if quick else 16, size=(8 if quick else 1024) << 20)
        _add_deadline(report, cluster, 1 if quick else 10)
        _add_half(report, cluster, 2 if quick else 60)
    return report


def _add_overhead(report: Report, cluster: Bed, count: int) -> None:
    """From the last statement of a trial to the first of the next one, one GPU for all."""
    ours = report.add("trial_overhead", _gaps_ms(_found(cluster, "overhead", COUNT=count)))
    theirs = report.add("ray_tune_overhead", _gaps_ms(cluster.compete(["ray_tune"], count)["ray_tune"]))
    report.ratios["ray_tune_overhead"] = theirs / ours


def _gaps_ms(spans: list[Any]) -> list[float]:
    ordered = sorted(spans)
    return [(later[0] - earlier[1]) * 1000 for earlier, later in itertools.pairwise(ordered)]


def _add_busy(report: Report, cluster: Bed, count: int) -> None:
    """Time at work of what four GPUs could have worked, from the first statement to the last one."""
    spans = _found(cluster, "busy", COUNT=count)
    whole_s = max(end for _, end in spans) - min(begin for begin, _ in spans)
    report.add("sweep_busy", [100 * sum(end - begin for begin, end in spans) / (_GPUS * whole_s)], unit="%")


def _add_memory(report: Report, cluster: Bed, *, count: int, size: int) -> None:
    """Memory of its own that a trial has more than one without the inputs; how often these were written."""
    store = Path(cluster.connection()["store"])
    before = _blob_bytes(store)
    (plain,), with_data = _found(cluster, "memory", COUNT=count, SIZE=size)
    report.add("sweep_memory", [one - plain for one in with_data], unit="MiB")
    report.add("sweep_inputs_written", [(_blob_bytes(store) - before) / size], unit="times")


def _blob_bytes(store: Path) -> int:
    return sum(file.stat().st_size for file in store.rglob("*") if file.is_file() and file.stat().st_size >= 1 << 20)


def _add_deadline(report: Report, cluster: Bed, count: int) -> None:
    """A cell of high priority arrives while a sweep holds all GPUs in rounds of 50 ms: until its first statement."""
    with kernel(cluster.work) as holder, kernel(cluster.work) as urgent:
        holder.run(_DEADLINE)
        report.add("deadline_beside_sweep", [_arrival_ms(holder, urgent) for _ in range(count)])
        holder.run("holding.cancel(); time.sleep(1); holding.cancel()")


def _add_half(report: Report, cluster: Bed, count: int) -> None:
    """From the call to the first statement: of a whole GPU and of half of one, in turn, the first of each left out."""
    asked = {"whole_first_statement": "--gpus 1", "half_first_statement": "--gpus 0.5"}
    found: dict[str, list[float]] = {name: [] for name in asked}
    with kernel(cluster.work) as notebook:
        for name, options in list(asked.items()) * (count + 1):
            notebook.run(_CELL.format(options=options))
            found[name].append(float(notebook.value("(first - sent) * 1000")))
            notebook.run("time.sleep(0.25)")
    whole, half = (report.add(name, of[1:]) for name, of in found.items())
    report.ratios["half_first_statement"] = half / whole


def _arrival_ms(holder: Kernel, urgent: Kernel) -> float:
    holder.run("while sum(trial.word == 'running' for trial in holding.all_trials) < 4: time.sleep(0.02)")
    urgent.run(_URGENT)
    return float(urgent.value("(first - sent) * 1000"))


def _found(cluster: Bed, part: str, **numbers: int) -> Any:
    """The findings of a script, as users start it."""
    given = "".join(f"{name} = {number}\n" for name, number in numbers.items())
    script = cluster.work / f"sweep_{part}.py"
    script.write_text(f"{_SCRIPT}{given}{_PARTS[part]}\nprint(json.dumps(found))\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{part}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
