"""From the cell's last statement until the lease is gone: descendants reaped, the next run could be granted."""

from __future__ import annotations

import json
import time

from .bed import Bed, Kernel, bed, kernel
from .report import Report

_SMALL = "history = [0.5, 0.25]\nx = 1"
_LARGE = "import numpy as np\ntable = np.full(1 << 27, 0.5)"


def run(*, quick: bool) -> Report:
    """Measure; figures come from the runs' own records (``jupyter gpu runs --json``)."""
    report = Report("release")
    with bed() as cluster, kernel(cluster.work) as notebook:
        report.add("lease_gone", _gone(notebook, cluster, _SMALL, 3 if quick else 50))
        _add_split(report, cluster, "", 3 if quick else 50)
        count = 1 if quick else 20
        report.add("lease_gone_1gib", _gone(notebook, cluster, _LARGE, count))
        _add_split(report, cluster, "_1gib", count)
        if not cluster.connection().get("simulated"):
            cell = "import torch\nweights = torch.ones(1 << 26, device='cuda'); torch.cuda.synchronize()"
            report.add("lease_gone_256mib_device", _gone(notebook, cluster, cell, 5))
            _add_split(report, cluster, "_256mib_device", 5)
    return report


def _add_split(report: Report, cluster: Bed, suffix: str, count: int) -> None:
    """Copy to the host, the processes' end (on a GPU the context's teardown), and Ray's part."""
    manifests = cluster.manifests(count)
    outcomes = [run["outcome"] for run in manifests]
    parts = {
        "copy": [(outcome["ended_s"], outcome["collected_s"]) for outcome in outcomes],
        "teardown": [(outcome["collected_s"], outcome["released_s"]) for outcome in outcomes],
        "lease": [(run["outcome"]["released_s"], run["gone_at"]) for run in manifests],
    }
    for name, spans in parts.items():
        report.add(name + suffix, [(end - begin) * 1000 for begin, end in spans])


def _gone(notebook: Kernel, cluster: Bed, cell: str, count: int) -> list[float]:
    found = []
    for _ in range(count):
        notebook.run(f"get_ipython().run_cell_magic('gpu_train', '--gpus 1', {cell!r})", limit_s=300)
        document = json.loads(cluster.cli("runs", "--json"))
        found.append(float(document["runs"][0]["release_ms"]))
        time.sleep(0.2)
    return found
