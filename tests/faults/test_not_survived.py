"""Faults that end the cluster: the kernel and its variables live on, with a clear error, and nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from fault_bed import Cluster
from kernel_bed import Notebook

Open = Callable[[Cluster], Notebook]
Until = Callable[[Callable[[], object], str], None]
pytestmark = pytest.mark.timeout(900)  # clusters of their own: 15 s, minutes on a machine that is busy
_LONG = (
    "%%gpu_train\nimport subprocess, time\nchild = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    "print('go', flush=True)\ntime.sleep(1000)"
)
#: what a kernel with Ray in it would be
_DRIVER = """
import ray, sys, time
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("joined", flush=True)
time.sleep(600)
"""


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray ends a driver so many seconds after its cluster (60 is its default); kernels get it, too."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")


@pytest.fixture
def driver(doomed: Cluster, short_patience: None) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, **doomed.ray_environment}
    command = [sys.executable, "-c", _DRIVER, doomed.connection.ray_address]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        yield process
        process.kill()


def _begin(notebook: Notebook) -> str:
    notebook.ok("precious = [1, 2]")
    cell = notebook.begin(_LONG)
    notebook.until(lambda shown: "go" in shown.lines())
    return cell


@pytest.mark.slow("a cluster of its own is killed")
def test_the_raylet_alone_is_killed(doomed: Cluster, open_notebook: Open, until: Until) -> None:
    notebook = open_notebook(doomed)
    notebook.ok("import time\nfrom jupyter_gpu_release import launch\nlaunched = launch(time.sleep, 1000)")
    cell = _begin(notebook)
    doomed.kill("raylet/raylet")
    shown = notebook.end(cell)
    assert shown.status == "error"
    assert "jupyter gpu" in shown.traceback or "cluster" in shown.traceback
    shown = notebook.run("launched.result()")
    assert shown.reply["ename"] == "RunLostError"
    assert notebook.value("launched.status") == "lost"
    assert notebook.value("precious") == [1, 2]
    until(lambda: not doomed.find(""), "nothing is left of the cluster")


@pytest.mark.thorough
def test_the_whole_cluster_is_killed_and_the_kernel_outlives_a_ray_driver(
    doomed: Cluster, driver: subprocess.Popen[str], open_notebook: Open, until: Until
) -> None:
    notebook = open_notebook(doomed)
    cell = _begin(notebook)
    doomed.kill_all()
    shown = notebook.end(cell)
    assert shown.status == "error"
    assert "cluster" in shown.traceback
    until(lambda: not doomed.find(""), "nothing is left of the cluster")
    assert driver.wait(180) != 0
    assert notebook.value("precious") == [1, 2]
    # the next cell starts a cluster anew, without a question
    assert "3" in notebook.ok("%%gpu_train\nsum(precious)", 300).displays()
