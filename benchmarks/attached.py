"""The test bed on a Ray cluster that is not ours: started as the operators' pages say, the gateway put on it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpu_release.local_cluster.ray_head import LOOPBACK_ONLY

from .bed import Bed

_LIMIT_S = 120.0


@contextmanager
def attached_bed(*, keeps_head: bool = False) -> Iterator[Bed]:
    """A Ray head with 4 GPUs in its books and the gateway on it; gone on every way out.

    ``keeps_head``: Ray keeps its tables on disk.
    """
    folder = Path(tempfile.mkdtemp(prefix="jgr-bench-"))
    before = dict(os.environ)
    kept = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": f"{folder}/gcs"} if keeps_head else {}
    os.environ.update(_ray_settings(folder) | kept)
    head = _start_head(folder)
    try:
        cluster = Bed(folder)
        cluster.start("--address", _address(folder, head))
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        head.send_signal(signal.SIGTERM)
        head.wait(60)
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


def _ray_settings(folder: Path) -> dict[str, str]:
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    path = (
        folder / "path"
    )  # as in local_cluster/ray_head.py: spares each process two seconds where JupyterLab is installed
    path.mkdir()
    (path / "rfc3987_syntax.py").write_text("raise ImportError('left out by the benchmark')\n")
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "PYTHONPATH": str(path),
        **LOOPBACK_ONLY,
        "RAY_raylet_report_resources_period_milliseconds": "2",
        "RAY_health_check_period_ms": "1000",
    }


def _start_head(folder: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--port=0",
        "--node-ip-address=127.0.0.1",
        f"--temp-dir={folder}/ray",
        "--num-gpus=4",
        "--object-store-memory=100000000",
        "--include-dashboard=false",
        "--dashboard-port=0",
        "--disable-usage-stats",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def _address(folder: Path, head: subprocess.Popen[bytes]) -> str:
    said, deadline = folder / "ray" / "ray_current_cluster", time.monotonic() + _LIMIT_S
    while not said.exists():
        if head.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("Ray did not start")
        time.sleep(0.05)
    return said.read_text().strip()
