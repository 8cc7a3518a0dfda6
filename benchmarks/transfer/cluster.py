"""What needs real kernels and a real cluster."""

from __future__ import annotations

from ..bed import Kernel, bed, kernel
from ..report import Report

_RSS = "sum(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith(('RssAnon', 'RssShmem')))"


def gpu_to_gpu(report: Report, *, quick: bool) -> None:
    """1 GiB made by a GPU cell and used by the next one: how much the notebook's own memory grows."""
    size = (1 << 24) if quick else (1 << 27)  # of 8 bytes
    grown: list[float] = []
    with bed() as cluster, kernel(cluster.work) as notebook:
        _cell(notebook, "import numpy as np\nwarm = np.ones(1 << 18)")
        _cell(notebook, "warm_sum = float(warm.sum())")
        for number in range(2 if quick else 4):
            before = _memory_mib(notebook)
            _cell(notebook, f"table = np.full({size}, {number}.5)")
            _cell(notebook, "total = float(table.sum())")
            grown.append(_memory_mib(notebook) - before)
            assert notebook.value("total") == size * (number + 0.5)
    report.add("gpu_to_gpu_kernel_growth", grown, unit="MiB")


def _cell(notebook: Kernel, cell: str) -> None:
    notebook.run(f"get_ipython().run_cell_magic('gpu_train', '--gpus 1', {cell!r})", limit_s=300)


def _memory_mib(notebook: Kernel) -> float:
    """Memory of the kernel's own: pages of mapped files are the system's, and go when it needs them."""
    return float(notebook.value(_RSS)) / 1024
