"""The cost for each cell of keeping the head's tables on disk: clusters without and with it in turn."""

from __future__ import annotations

import json

from ..attached import attached_bed
from ..bed import Bed, Kernel, kernel
from ..report import Report

_CELL = "get_ipython().run_cell_magic('gpu_train', '--gpus 1', 'import time; first_s = time.time()')"


def add_memory(report: Report, *, quick: bool) -> None:
    """Run small cells, one after the other; each cluster is a new one."""
    found: dict[str, list[float]] = {}
    for _ in range(1 if quick else 3):
        for name in ("off", "on"):
            with attached_bed(keeps_head=name == "on") as cluster, kernel(cluster.work) as notebook:
                notebook.run(_CELL)
                cells = [_first_ms(notebook) for _ in range(3 if quick else 30)]
                found.setdefault(f"first_statement_memory_{name}", []).extend(cells)
                found.setdefault(f"release_memory_{name}", []).extend(_release_ms(cluster, len(cells)))
    for name, values in found.items():
        report.add(name, values)
    report.notes.append(
        "memory_on: RAY_gcs_storage=rocksdb on the disk of the benchmark's folder. first_statement: from the cell's"
        " start; target: at most 1 ms more. release: from the cell's last statement until its lease is gone; target:"
        " at most 3 ms more"
    )


def _first_ms(notebook: Kernel) -> float:
    notebook.run(f"import time; begun_s = time.time(); {_CELL}")
    return float(notebook.value("(first_s - begun_s) * 1000"))


def _release_ms(cluster: Bed, count: int) -> list[float]:
    """Of the newest runs."""
    runs = json.loads(cluster.cli("runs", "--json", "--limit", str(count)))["runs"]
    return [float(run["release_ms"]) for run in runs]
