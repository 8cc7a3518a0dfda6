"""A pool on a real Slurm of two nodes: a cell that asks for its node, against an empty ``srun`` and a cold worker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import Connection
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.rest import Health

from ..bed import Bed, Kernel, kernel
from ..report import CannotMeasureError, Report

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "harness"))
from slurm_bed import PROGRAMS, SlurmBed

_IDLE_RETURN_S = 5.0
_POOL = f"""
max_nodes: 2
gpus_per_node: 2
gres: gpu:2
cpus_per_node: 2
walltime: 1h
idle_return: {_IDLE_RETURN_S:g}s
simulated_gpus: true
"""
_CALL = """
import time
t_call = time.time()
get_ipython().run_cell_magic("gpu_train", "--gpus 1", "import time; t_first = time.time()")
"""
_LIMIT_S = 240.0


def add_slurm(report: Report, *, quick: bool) -> None:
    """Measure each in turn, so that all of them see the same machine."""
    if os.geteuid() or not all(map(shutil.which, (*PROGRAMS, "srun"))):
        raise CannotMeasureError("it needs root, and Slurm (Debian: slurmctld, slurmd, slurm-client, munge)")
    found: dict[str, list[float]] = {}
    with _slurm_bed() as (slurm, cluster), kernel(cluster.work) as notebook:
        _first_cell(notebook)  # the first one starts the relay and fills caches
        _end_of_idle_node(slurm, cluster)
        for _ in range(1 if quick else 5):
            _one_round(slurm, cluster, notebook, found)
    for metric, values in found.items():
        report.add(metric, values, "s")
    extra = [first - srun - cold for first, srun, cold in zip(*(found[name] for name in _PARTS), strict=True)]
    report.add("slurm_first_cell_over_its_parts", extra, "s")
    report.notes.append(
        "slurm_first_cell: from the call to the first statement on a node that had to be asked for; srun: an empty one"
        " on an idle partition; cold_worker: the same worker without Slurm, until its node takes runs. Target: first"
        " cell ≤ srun + cold_worker + 2 s. idle_return_end: from the last lease's end to the job's,"
        f" less idle_return ({_IDLE_RETURN_S:g} s); target ≤ 2 s"
    )


_PARTS = ("slurm_first_cell", "srun", "cold_worker")


def _one_round(slurm: SlurmBed, cluster: Bed, notebook: Kernel, found: dict[str, list[float]]) -> None:
    measured = {
        "srun": _seconds(lambda: slurm.ask("srun", "--gres=gpu:2", "--cpus-per-task=2", "true")),
        "cold_worker": _cold_worker(cluster),
        "slurm_first_cell": _first_cell(notebook),
        "slurm_next_cell": _first_cell(notebook),
        "idle_return_end": _end_of_idle_node(slurm, cluster) - _IDLE_RETURN_S,
    }
    for name, seconds in measured.items():
        found.setdefault(name, []).append(seconds)


@contextmanager
def _slurm_bed() -> Iterator[tuple[SlurmBed, Bed]]:
    """A Slurm, and a cluster that borrows its nodes; both gone on every way out."""
    before = dict(os.environ)
    slurm = SlurmBed()
    folder = Path(tempfile.mkdtemp(prefix="jgr-bench-"))
    try:
        os.environ["SLURM_CONF"] = str(slurm.conf)
        cluster = Bed(folder)
        (folder / "pool.yml").write_text(_POOL)
        try:
            cluster.start("--slurm", str(folder / "pool.yml"))
            yield slurm, cluster
        finally:
            cluster.stop()
    finally:
        slurm.stop()
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


def _seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _first_cell(notebook: Kernel) -> float:
    notebook.run(_CALL, limit_s=_LIMIT_S)
    return float(notebook.value("t_first") - notebook.value("t_call"))


def _end_of_idle_node(slurm: SlurmBed, cluster: Bed) -> float:
    """Seconds from the newest run's release to the end of the last job."""
    (run,) = cluster.manifests(1)
    _wait(lambda: not slurm.jobs(), "the end of the idle node's job")
    return time.time() - float(run["gone_at"])


def _cold_worker(cluster: Bed) -> float:
    """A worker as a job would start it, until its node takes runs; it is gone from the cluster afterwards."""
    connection = msgspec.convert(cluster.connection(), Connection)
    module = "jupyter_gpu_release.local_cluster.slurm_worker"
    command = [sys.executable, "-m", module, str(cluster.home), connection.cluster]
    environment = {**os.environ, "SLURM_JOB_ID": "0", "CUDA_VISIBLE_DEVICES": "0,1"}
    with GatewayClient.for_target(target_of(connection), timeout_s=60) as gateway:
        _wait(lambda: not gateway.health().gpus_total, "the end of the last job's node")
        began_s = time.perf_counter()
        worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            _wait(lambda: _is_up(gateway.health()), "the worker's node")
            took_s = time.perf_counter() - began_s
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        _wait(lambda: not gateway.health().gpus_total, "the worker's end")
    return took_s


def _is_up(health: Health) -> bool:
    return bool(health.gpus_total) and health.agents == health.nodes


def _wait(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} has not come about within {_LIMIT_S:g} s")
        time.sleep(0.05)
