"""A pool on a real Slurm of two nodes: nodes come when cells want them, go back when nobody does, and end with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_bed import FakeGpus, build_library
from pool_bed import PoolBed, answer, jobs_of
from ports import free_port
from slurm_bed import NODES, PROGRAMS, wait_until
from soak import ONLY_IN_SOAK

from jupyter_gpu_release.local_cluster.start import running_connection

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)), reason="needs root, and Slurm"),
]
POOL = """
max_nodes: 2
gpus_per_node: 2
gres: gpu:2
cpus_per_node: 2
walltime: 1h
idle_return: 12s
simulated_gpus: true
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolBed]:
    made = PoolBed(tmp_path_factory.mktemp("slurm"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def pool(bed: PoolBed) -> PoolBed:
    """With its pool, whichever tests were before."""
    started = bed.start(POOL)
    assert started.returncode == 0, started.stderr
    return bed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (POOL + "partition: nowhere\n", "invalid partition specified: nowhere"),
        (POOL + "partition: theirs\naccount: ours\n", "Invalid account or account/partition combination specified"),
        (POOL + "partition: short\n", "Requested time limit is invalid (missing or exceeds some limit)"),
        (POOL + "sbatch: [--constraint=nothing]\n", "Invalid feature specification"),
        (POOL.replace("gpu:2", "gpu:9"), "Requested node configuration is not available"),
    ],
)
def test_what_slurm_would_refuse_is_said_before_anything_starts(bed: PoolBed, text: str, says: str) -> None:
    refused = bed.start(text)
    assert refused.returncode == 1
    assert says in refused.stderr
    assert running_connection(bed.home) is None
    assert bed.slurm.jobs() == []


def test_without_slurm_here_the_command_is_named(bed: PoolBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bed.environment, "PATH", "/nowhere")
    refused = bed.start(POOL)
    assert "Slurm's command sbatch is not on this machine" in refused.stderr


def test_small_runs_share_a_node_which_goes_back(bed: PoolBed) -> None:
    started = bed.start(POOL)
    assert started.returncode == 0, started.stderr
    assert "nodes    from Slurm: a cell that needs one has a job submitted to Slurm" in started.stdout
    assert bed.slurm.jobs() == []
    had = answer(bed.launch(1, times=2))
    assert [ids for ids, *_ in had] in (["0", "1"], ["1", "0"], ["0", "0"], ["1", "1"])  # one after the other, maybe
    wait_until(lambda: not bed.slurm.jobs(), "the end of the idle node's job")
    asked = ("squeue", "-h", "-t", "all", "-o", "%T")
    wait_until(lambda: bed.slurm.ask(*asked).split() == ["CANCELLED"], "one job for both, tidied away")


def test_a_gang_waits_for_all_of_its_nodes_and_takes_its_jobs_back(pool: PoolBed) -> None:
    pool.set_node("n2", "DRAIN")
    gang = pool.launch(4, ranks=2, nodes=2)
    wait_until(lambda: pool.says("pending ("), "the reason of Slurm")
    (reason,) = pool.waits()
    assert re.match(r"waiting for a node: Slurm job \d+, pending \(.+\)", reason)
    assert sorted(job.split()[1] for job in pool.slurm.jobs()) == ["PENDING", "RUNNING"]
    assert pool.command("cancel", "last").returncode == 0
    gang.communicate(timeout=60)
    wait_until(lambda: not pool.slurm.jobs(), "the end of both jobs")
    pool.set_node("n2", "RESUME")


def test_a_job_that_cannot_reach_the_head_says_so_and_is_over(pool: PoolBed) -> None:
    config = pool.home.root / "gateway.json"  # what nodes know of the head
    text = config.read_text()
    nobody = f"127.0.0.1:{free_port()}"
    config.write_text(json.dumps({**json.loads(text), "ray_address": nobody}))
    try:
        launched = pool.launch(1)
        wait_until(lambda: pool.says(f"cannot reach the head at {nobody}"), "the last lines of the job's log")
        assert pool.says("set address:")
        wait_until(lambda: not pool.slurm.jobs(), "the end of the job")
    finally:
        config.write_text(text)
    assert pool.command("cancel", "last").returncode == 0
    launched.communicate(timeout=60)
    assert pool.slurm.jobs() == []


@ONLY_IN_SOAK  # limits of Slurm are whole minutes
def test_before_a_nodes_end_a_restartable_run_moves_and_one_that_does_not_fit_is_elsewhere(
    pool: PoolBed, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    for name in NODES:
        pool.set_node(name, "DRAIN")
    restartable = pool.launch(1, until=go, restartable=True)
    wait_until(pool.slurm.jobs, "a pending job")
    (short,) = (job.split()[0] for job in pool.slurm.jobs())
    pool.slurm.ask("scontrol", "update", f"JobId={short}", "TimeLimit=5")  # minutes; in its last two it takes no runs
    for name in NODES:
        pool.set_node(name, "RESUME")
    wait_until(lambda: jobs_of(go) == [short], "the first node")
    long = pool.launch(1, until=go, timeout="30m")  # there is room on the first node, but no time
    wait_until(lambda: len(jobs_of(go)) == 3, "the restartable run's second start")
    assert short not in jobs_of(go)[1:]
    go.touch()
    assert {job for launched in (restartable, long) for _, job, _ in answer(launched)} == set(jobs_of(go)[1:])
    pool.slurm.ask("scancel", short)
    wait_until(lambda: not pool.slurm.jobs(), "the end of both jobs")


@ONLY_IN_SOAK
@pytest.mark.parametrize("how", ["fails", "is preempted"])
def test_when_a_node_goes_what_is_restartable_goes_on_elsewhere(pool: PoolBed, tmp_path: Path, how: str) -> None:
    go, never = tmp_path / "go", tmp_path / "never"
    restartable = pool.launch(1, until=go, restartable=True)
    wait_until(lambda: jobs_of(go), "the node")
    lost = pool.launch(1, until=never)
    wait_until(lambda: jobs_of(never) == jobs_of(go), "the other run on the same node")
    (name,) = pool.slurm.ask("squeue", "-h", "-t", "RUNNING", "-o", "%N").split()
    (job,) = (job.split()[0] for job in pool.slurm.jobs())
    pool.slurm.ask("scontrol", "requeue", job)
    assert pool.slurm.jobs() == [f"{job} RUNNING"]  # a job of a pool cannot be queued again
    urgent = ["--partition=urgent", f"--nodelist={name}", "--exclusive", "--output=/dev/null", "--wrap=sleep 900"]
    by = pool.slurm.ask("sbatch", "--parsable", *urgent) if how == "is preempted" else ""
    if not by:
        pool.set_node(name, "DOWN")
    assert answer(lost) == [["RunLostError"]]
    wait_until(lambda: jobs_of(go)[1:], "the restartable run's second start")
    go.touch()
    assert len(answer(restartable)) == 1
    assert len(set(jobs_of(go))) == 2
    pool.set_node(name, "RESUME")
    pool.slurm.ask("scancel", *by.split())


def test_on_a_node_that_slurm_drains_what_is_restartable_goes_elsewhere_and_the_rest_ends_there(
    pool: PoolBed, tmp_path: Path
) -> None:
    go, end = tmp_path / "go", tmp_path / "end"
    moves = pool.launch(1, until=go, restartable=True)
    wait_until(lambda: jobs_of(go), "the node")
    ends = pool.launch(1, until=end)
    wait_until(lambda: jobs_of(end) == jobs_of(go), "the other run on the same node")
    (name,) = pool.slurm.ask("squeue", "-h", "-t", "RUNNING", "-o", "%N").split()
    pool.set_node(name, "DRAIN")
    wait_until(lambda: jobs_of(go)[1:], "the restartable run's second start")
    drained, other = jobs_of(go)
    assert pool.told() == ["its node is drained in Slurm (test): the run may end there, and the node then goes back"]
    assert {job.split()[0] for job in pool.slurm.jobs()} == {drained, other}
    end.touch()
    assert [job for _, job, _ in answer(ends)] == [drained]
    wait_until(lambda: [job.split()[0] for job in pool.slurm.jobs()] == [other], "the end of the drained node's job")
    go.touch()
    assert [job for _, job, _ in answer(moves)] == [other]
    pool.set_node(name, "RESUME")
    wait_until(lambda: not pool.slurm.jobs(), "the end of the idle node's job")


@ONLY_IN_SOAK
def test_who_waits_while_the_controller_is_away_is_told_and_gets_a_node_afterwards(
    pool: PoolBed, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    runs = pool.launch(2, until=go)
    wait_until(lambda: jobs_of(go), "the first node")
    before = pool.troubles()
    pool.slurm.stop_controller()
    waits = pool.launch(2, until=go)
    wait_until(lambda: pool.says("waiting for a node: sbatch: "), "the words of sbatch")
    # tries are ever further apart: by now it was away for longer than a node may be idle, or silent
    wait_until(lambda: pool.troubles() >= before + 3, "further tries")
    assert pool.says("Unable to contact slurm controller")
    assert len(jobs_of(go)) == 1
    assert pool.told() == []
    pool.slurm.start_controller()
    wait_until(lambda: len(jobs_of(go)) == 2, "the second node")
    go.touch()
    assert [job for launched in (runs, waits) for _, job, _ in answer(launched)] == jobs_of(go)
    wait_until(lambda: not pool.slurm.jobs(), "the end of both jobs")


def test_a_cell_goes_on_while_the_controller_is_away_and_stop_ends_all_jobs(pool: PoolBed, tmp_path: Path) -> None:
    go = tmp_path / "go"
    gang = pool.launch(4, until=go, ranks=2, nodes=2)
    wait_until(lambda: not pool.waits() and len(pool.slurm.jobs()) == 2, "the gang's nodes")
    pool.slurm.stop_controller()
    third = pool.launch(2)
    wait_until(lambda: pool.says("the pool has all of its 2 nodes"), "the pool's limit")
    go.touch()
    assert len(answer(gang)) == 1
    assert len(answer(third)) == 1
    pool.slurm.start_controller()
    wait_until(lambda: pool.slurm.ask("sinfo", "-h"), "the controller")
    stopped = pool.command("stop", "--yes")
    assert stopped.returncode == 0, stopped.stderr
    assert pool.slurm.jobs() == []


def test_nodes_that_lack_the_home_are_said_and_no_job_is_left(tmp_path: Path) -> None:
    """``slurmd`` sees an empty folder in its place."""
    python = tmp_path / "python"
    hide = f'mount -t tmpfs none {tmp_path}/home; exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{hide}' python \"$@\"\n")
    python.chmod(0o755)
    (tmp_path / "home").mkdir()
    bed = PoolBed(tmp_path, str(python))
    try:
        started = bed.start(POOL)
        assert started.returncode == 0, started.stderr
        launched = bed.launch(1)
        wait_until(lambda: bed.says("do the compute nodes have that folder?"), "what is suspected")
        wait_until(lambda: not bed.slurm.jobs(), "the end of the job")
        assert bed.command("stop", "--yes").returncode == 0
        launched.kill()
        assert bed.slurm.jobs() == []
    finally:
        bed.stop()


def test_two_jobs_on_one_host_give_their_own_gpu_each(
    bed: PoolBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    gpus = FakeGpus(build_library(tmp_path), tmp_path / "gpus")
    for name, value in {**gpus.environment, "JUPYTER_GPU_ENVIRONMENT": "FAKE_NVML"}.items():
        monkeypatch.setitem(bed.environment, name, value)
    bed.set_node("n2", "DRAIN")
    pool = POOL.replace("gpu:2", "gpu:1").replace("gpus_per_node: 2", "gpus_per_node: 1")
    started = bed.start(pool.replace("simulated_gpus: true", ""))
    assert started.returncode == 0, started.stderr
    both = [bed.launch(1, until=go), bed.launch(1, until=go)]
    wait_until(lambda: len(jobs_of(go)) == 2, "both nodes")
    assert sorted(gpu.uuid for node in bed.nodes() for gpu in node.gpus) == ["GPU-0", "GPU-1"]
    go.touch()
    had = [ended for launched in both for ended in answer(launched)]
    assert {visible for _, _, visible in had} == {"GPU-0", "GPU-1"}
    assert len({job for _, job, _ in had}) == 2
    assert bed.command("stop", "--yes").returncode == 0
    assert bed.slurm.jobs() == []
    bed.set_node("n2", "RESUME")
