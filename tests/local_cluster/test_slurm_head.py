"""The head of a Slurm pool is killed and started again: the nodes, their runs and the jobs go on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from doc_blocks import block
from kernel_bed import Notebook
from pool_bed import PoolBed, answer, jobs_of
from slurm_bed import PROGRAMS, wait_until

from jupyter_gpu_release.host.process_control import is_gone
from jupyter_gpu_release.local_cluster.launch_spec import read_plans
from jupyter_gpu_release.local_cluster.processes import cluster_processes

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)), reason="needs root, and Slurm"),
]
_POOL = """
max_nodes: 2
gpus_per_node: 2
gres: gpu:2
cpus_per_node: 2
walltime: 1h
idle_return: 10m
simulated_gpus: true
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[PoolBed]:
    made = PoolBed(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def head_processes(bed: PoolBed) -> list[psutil.Process]:
    """All processes of the cluster on this machine that are not below a job's."""
    (plan,) = read_plans(bed.home)
    found = []
    for pid in cluster_processes(plan.cluster, plan.daemon_pid, plan.runtime):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if "slurmstepd" not in [above.name() for above in process.parents()]:
                found.append(process)
    return found


def kill_head(bed: PoolBed) -> None:
    """As when the machine loses its power."""
    while left := [process for process in head_processes(bed) if not is_gone(process.pid)]:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def crash_gcs(bed: PoolBed) -> None:
    """Only Ray's centre ends by itself; the daemon ends what is left."""
    (gcs,) = (process for process in head_processes(bed) if process.name() == "gcs_server")
    gcs.kill()
    wait_until(lambda: not head_processes(bed), "the end of the head's other processes")


def test_nodes_runs_and_jobs_outlive_the_head(bed: PoolBed, tmp_path: Path) -> None:
    go = tmp_path / "go"
    assert bed.start(_POOL).returncode == 0
    bed.set_node("n2", "DRAIN")
    first = bed.launch(1, until=go)
    wait_until(lambda: jobs_of(go), "the first node")
    gang = bed.launch(2, until=go, ranks=2, nodes=2)
    wait_until(lambda: bed.says("pending ("), "the gang's second node to be asked for")
    before = bed.slurm.jobs()
    assert sorted(job.split()[1] for job in before) == ["PENDING", "RUNNING"]

    (again,) = block("operate/head-lost.md", "## A pool of Slurm's").commands({"pool.yml": str(bed.file)})
    for lose in (kill_head, crash_gcs):
        lose(bed)
        assert bed.slurm.jobs() == before
        started = bed.command(*again.split()[2:])
        assert started.returncode == 0, started.stderr
        wait_until(lambda: bed.says("pending ("), "the gang to wait for the same job")
        assert bed.slurm.jobs() == before
        status = json.loads(bed.command("status", "--json").stdout)
        assert (status["gpus"]["total"], status["gpus"]["held"]) == (2, 1)

    bed.set_node("n2", "RESUME")
    wait_until(lambda: len(jobs_of(go)) == 3, "the gang on both nodes, beside the first run")
    go.touch()
    assert len(answer(first)) == len(answer(gang)) == 1
    assert len(jobs_of(go)) == 3  # nobody has begun twice
    assert {job.split()[0] for job in bed.slurm.jobs()} == {job.split()[0] for job in before}
    assert bed.command("stop", "--yes").returncode == 0
    assert bed.slurm.jobs() == []
    assert list(read_plans(bed.home)) == []


def test_a_notebooks_cell_goes_on_and_its_output_and_result_come(
    bed: PoolBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CONF", "JUPYTER_GPU_HOME"):
        monkeypatch.setenv(name, bed.environment[name])
    go = tmp_path / "go"
    count = (
        "number = 0\nwhile not pathlib.Path(GO).exists():\n    print(number, flush=True); number += 1; time.sleep(0.1)"
    )
    assert bed.start(_POOL).returncode == 0
    notebook = Notebook(tmp_path)
    try:
        notebook.ok("from jupyter_gpu_release.kernel.runs import follow; follow._GIVE_UP_S = 400")  # a busy machine
        counting = notebook.begin(f"%%gpu_train\nimport pathlib, time\n{count.replace('GO', repr(str(go)))}")
        notebook.until(lambda shown: len(shown.lines()) > 3, 240)
        before = bed.slurm.jobs()
        kill_head(bed)
        notebook.until(lambda shown: any("connection to the gateway lost" in text for text in shown.displays()))
        assert bed.start(_POOL).returncode == 0
        seen = len(notebook.until(lambda shown: True).lines())
        notebook.until(lambda shown: len(shown.lines()) > seen + 20, 240)
        go.touch()
        shown = notebook.end(counting)
        assert shown.status == "ok", shown.traceback
        numbers = [int(line) for line in shown.lines() if line.isdecimal()]
        assert numbers == list(range(len(numbers)))
        assert notebook.value("number") == len(numbers)
        assert bed.slurm.jobs() == before
        assert len(notebook.ok("%%gpu_train\nnext_one = 1").receipt) > 0
    finally:
        notebook.close()
    assert bed.command("stop", "--yes").returncode == 0
    assert bed.slurm.jobs() == []


def test_what_is_lost_goes_back_and_no_other_cluster_takes_its_place(bed: PoolBed, tmp_path: Path) -> None:
    assert bed.start(_POOL).returncode == 0
    bed.launch(1, until=tmp_path / "never")
    wait_until(lambda: jobs_of(tmp_path / "never"), "the node")
    kill_head(bed)
    refused = bed.command("start", "--simulated-gpus", "2")
    assert refused.returncode == 1
    assert "jupyter gpu stop" in refused.stderr
    assert "RUNNING" in bed.slurm.jobs()[0]
    assert bed.command("stop", "--yes").returncode == 0
    assert bed.slurm.jobs() == []


def test_nodes_whose_head_stays_away_go_back(bed: PoolBed, tmp_path: Path) -> None:
    never = tmp_path / "never"
    assert bed.start(_POOL + "head_grace: 1m\n").returncode == 0
    bed.launch(1, until=never)
    wait_until(lambda: jobs_of(never), "the node")
    kill_head(bed)
    wait_until(lambda: not bed.slurm.jobs(), "the end of the job")
    assert bed.command("stop", "--yes").returncode == 0
    assert list(read_plans(bed.home)) == []
