"""Memory and idle cost of our own processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil

from .bed import Bed, Kernel

_LOAD = """
import json, sys, time, psutil
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
me = psutil.Process()
before = me.memory_info().rss
began = time.perf_counter()
shell.run_line_magic("load_ext", "jupyter_gpu_release")
seconds = time.perf_counter() - began
heavy = sorted({"ray", "torch", "numpy", "pandas"} & set(sys.modules))
assert not heavy, heavy
print(json.dumps([seconds, (me.memory_info().rss - before) / 2**20]))
"""


def load_cost(count: int) -> tuple[list[float], list[float]]:
    """Seconds and MiB of ``%load_ext`` in fresh interpreters."""
    found = []
    for _ in range(count):
        done = subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return [seconds for seconds, _ in found], [mib for _, mib in found]


def rank_private_mib(notebook: Kernel) -> float:
    """Private memory of a rank before its cell does anything."""
    cell = "facts = dict(l.split(':') for l in open('/proc/self/smaps_rollup').read().splitlines()[1:])"
    notebook.run(f"get_ipython().run_cell_magic('gpu_train', '--gpus 1', {cell!r})")
    kib = notebook.value("sum(int(facts[k].split()[0]) for k in ('Private_Dirty', 'Private_Clean'))")
    return float(kib) / 1024


def idle_cpu_percent(cluster: Bed, seconds: float) -> float:
    """CPU of all our processes together while nothing runs, in percent of one core (Ray's own daemons apart)."""
    time.sleep(2)
    ours = [process for process in psutil.process_iter() if _is_ours(process, cluster.connection()["cluster"])]

    def used() -> float:
        total = 0.0
        for process in ours:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return total

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds * 100


def _is_ours(process: psutil.Process, cluster: str) -> bool:
    try:
        if process.environ().get("JUPYTER_GPU_CLUSTER") != cluster:
            return False
        words = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return "jupyter_gpu_release" in words or "Gateway" in words or "NodeAgent" in words
