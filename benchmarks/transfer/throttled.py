"""Part of ``transfer``: a store that writes 20 MB/s does not hold a GPU until 1 GiB of results is written."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient

from ..bed import Bed, Kernel, bed, kernel, manifest_of
from ..report import Report

_RATE = "20MB"
_CELL = "%%gpu_train --gpus 1\nimport numpy as np\ntable = np.full(1 << 27, 0.5)"
_LIMIT_S = 120.0


def lease_gone_throttled(report: Report) -> None:
    """Add ``lease_gone_throttled_1gib``: from the results in host memory to the lease's end.

    Starts a cluster of its own, whose writes of results are limited (``JUPYTER_GPU_PERSIST_RATE``). The results
    are given up as soon as the lease is gone: writing them would take 54 s each.
    """
    os.sync()  # what earlier parts wrote takes the disk and a core for a while
    os.environ["JUPYTER_GPU_PERSIST_RATE"] = _RATE
    try:
        with bed(own=True) as cluster, kernel(cluster.work) as notebook:
            notebook.run("%%gpu_train --gpus 1\nimport numpy as np")
            found = [_gone_ms(cluster, notebook) for _ in range(5)]
    finally:
        del os.environ["JUPYTER_GPU_PERSIST_RATE"]
    report.add("lease_gone_throttled_1gib", found)


def _gone_ms(cluster: Bed, notebook: Kernel) -> float:
    notebook.client.execute(_CELL)
    where = cluster.connection()
    with GatewayClient(where["url"], read_secret(Path(where["token_file"]))) as gateway:
        run = _until_persisting(gateway)
        manifest = manifest_of(Path(where["store"]) / "runs" / run, _LIMIT_S)
        gateway.cancel(run)
    notebook.client.get_shell_msg(timeout=_LIMIT_S)
    return float((manifest["gone_at"] - manifest["outcome"]["collected_s"]) * 1000)


def _until_persisting(gateway: GatewayClient) -> str:
    """Asked by a connection: a command line for each look would take one of the cores that are measured."""
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        rows = gateway.runs(1).runs
        if rows and rows[0].state == "persisting":
            return rows[0].run
        time.sleep(0.1)
    raise TimeoutError("the run with 1 GiB of results was never persisting")
