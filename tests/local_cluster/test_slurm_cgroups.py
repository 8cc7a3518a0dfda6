"""A pool on a real Slurm that confines its jobs by cgroups: node and cells have the job's memory, cores and GPUs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from inspector import Inspector
from pool_bed import PoolBed, answer
from slurm_bed import GPUS, PROGRAMS, has_cgroups, wait_until

from jupyter_gpu_release.local_cluster.start import running_connection

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)), reason="needs root, and Slurm"),
    pytest.mark.skipif(not has_cgroups(), reason="needs cgroups of version 1 that can be written"),
]
_MEMORY = 2 << 30
_POOL = """
max_nodes: 1
gpus_per_node: 1
gres: gpu:1
cpus_per_node: 1
memory: 2G
walltime: 1h
simulated_gpus: true
"""
_LAUNCH = """
import json, sys
from jupyter_gpu_release import launch
def look(files):
    import os
    from pathlib import Path
    def problem_of(file):
        try:
            os.close(os.open(file, os.O_RDWR))
        except OSError as error:
            return error.errno
    (own,) = (line.split(":")[2] for line in open("/proc/self/cgroup").read().splitlines() if ":cpuset:" in line)
    given = Path("/sys/fs/cgroup/cpuset" + own, "cpuset.cpus").read_text().strip()
    return given, sorted(os.sched_getaffinity(0)), [problem_of(file) for file in files]
def fill(files):
    import time
    held = []
    while len(held) < 3 << 7:
        held.append(b"1" * (8 << 20))
        time.sleep(0.01)
try:
    print(json.dumps(launch(globals()[sys.argv[1]], sys.argv[2:], gpus=1).result(timeout=400)))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolBed]:
    made = PoolBed(tmp_path_factory.mktemp("slurm"), confines=True)
    try:
        assert made.start(_POOL).returncode == 0
        yield made
    finally:
        made.stop()


def launched(bed: PoolBed, name: str) -> list[object]:
    files = [str(bed.slurm.folder / f"gpu{number}") for number in range(GPUS)]
    command = [sys.executable, "-c", _LAUNCH, name, *files]
    done = subprocess.run(command, env=bed.environment, capture_output=True, text=True, timeout=450, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_cells_have_the_jobs_cores_and_no_other_jobs_gpu(bed: PoolBed) -> None:
    given, cores, problems = launched(bed, "look")
    assert [str(core) for core in cores] == [given]
    assert sorted(problems) == [errno.EPERM, errno.ENXIO]  # of Slurm; of the system, as there is no driver


def test_ray_counts_with_the_jobs_memory(bed: PoolBed) -> None:
    launched(bed, "look")
    connection = running_connection(bed.home)
    assert connection is not None
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(bed.home.root / "ray-token")}
    inspector = Inspector(connection.ray_address, {**bed.environment, **token}, bed.home.root / "inspector.log")
    try:
        assert 0 < min(inspector.ask("memory")) < _MEMORY
    finally:
        inspector.close()


def test_a_cell_that_wants_more_than_the_job_has_is_told(bed: PoolBed) -> None:
    launched(bed, "look")
    waits = bed.launch(1, memory="3GiB")
    wait_until(lambda: bed.says("no node of the pool has 3 GiB of memory"), "the refusal")
    assert bed.command("cancel", "last").returncode == 0
    waits.communicate(timeout=60)


def test_a_cell_that_takes_more_than_the_job_has_ends_alone(bed: PoolBed) -> None:
    launched(bed, "look")
    before = bed.slurm.jobs()
    ended = launched(bed, "fill")
    assert ended[0] == "RunFailedError"
    assert "of host memory, its limit is 1.5 GiB" in str(ended[1])  # of the job's 2
    assert launched(bed, "look")
    assert bed.slurm.jobs() == before


def test_nothing_of_a_job_is_left_in_its_cgroup(bed: PoolBed) -> None:
    assert answer(bed.launch(1))
    (job,) = (job.split()[0] for job in bed.slurm.jobs())
    own = [Path(f"/sys/fs/cgroup/memory/slurm_{node}/uid_0/job_{job}") for node in ("n1", "n2")]
    assert [folder for folder in own if folder.exists()]
    assert bed.command("stop", "--yes").returncode == 0
    assert bed.slurm.jobs() == []
    wait_until(lambda: not any(folder.exists() for folder in own), "the end of its cgroup")
