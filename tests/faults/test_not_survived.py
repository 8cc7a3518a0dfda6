"""Faults that end the cluster: the kernel and its variables live on, with a clear error, and nothing is left."""

from __future__ import annotations

import time
from collections.abc import Callable

from fault_bed import Cluster
from kernel_bed import Notebook

from jupyter_gpu_release.cli.processes import cluster_processes

Open = Callable[[Cluster], Notebook]
_LONG = (
    "%%gpu_train\nimport subprocess, time\nchild = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    "print('go', flush=True)\ntime.sleep(1000)"
)


def _begin(notebook: Notebook) -> str:
    notebook.ok("precious = [1, 2]")
    cell = notebook.begin(_LONG)
    notebook.until(lambda shown: "go" in shown.text())
    return cell


def _wait_until_nothing_is_left(cluster: Cluster) -> None:
    deadline = time.monotonic() + 20
    while cluster_processes(cluster.connection.cluster) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [p.cmdline() for p in cluster.find("")] == []


def test_the_raylet_alone_is_killed(doomed: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(doomed)
    cell = _begin(notebook)
    doomed.kill("raylet/raylet")
    shown = notebook.end(cell, 90)
    assert shown.status == "error"
    assert "jupyter gpu" in shown.traceback or "cluster" in shown.traceback
    assert notebook.value("precious") == [1, 2]
    _wait_until_nothing_is_left(doomed)


def test_the_whole_cluster_is_killed_and_the_kernel_lives_beyond_90_s(doomed: Cluster, open_notebook: Open) -> None:
    notebook = open_notebook(doomed)
    cell = _begin(notebook)
    doomed.kill_all()
    killed_at = time.monotonic()
    shown = notebook.end(cell, 90)
    assert shown.status == "error"
    assert "cluster" in shown.traceback
    _wait_until_nothing_is_left(doomed)
    while time.monotonic() - killed_at < 95:  # a Ray driver would be ended 61 s after its cluster
        assert notebook.value("precious") == [1, 2]
        time.sleep(5)
    # the next cell starts a cluster anew, without a question
    assert "3" in notebook.ok("%%gpu_train\nsum(precious)", 120).displays()
