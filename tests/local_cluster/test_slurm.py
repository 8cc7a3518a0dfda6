"""A pool on a real Slurm of two nodes: nodes come when cells want them, go back when nobody does, and end with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_bed import FakeGpus, build_library
from slurm_bed import NODES, PROGRAMS, SlurmBed, wait_until
from soak import ONLY_IN_SOAK

from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.local_cluster.start import running_connection, stop_embedded
from jupyter_gpu_release.protocol.rest import NodeRow, StatusDocument

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
_LAUNCH = """
import json, sys
from jupyter_gpu_release import checkpoint, launch
from jupyter_gpu_release.errors import RunLostError
def look(until):
    import os, psutil, time
    from pathlib import Path
    job = next(filter(None, (above.environ().get("SLURM_JOB_ID") for above in psutil.Process().parents())))
    if until:
        with open(until + ".jobs", "a") as file:
            print(job, file=file)
    while until and not Path(until).exists():
        checkpoint({})
        time.sleep(0.05)
    return [os.environ.get("JUPYTER_GPU_IDS"), job, os.environ.get("CUDA_VISIBLE_DEVICES")]
def end_of(run):
    try:
        return run.result(timeout=400)
    except RunLostError as error:
        return [type(error).__name__]
runs = [launch(look, sys.argv[3], **json.loads(sys.argv[1])) for _ in range(int(sys.argv[2]))]
print(json.dumps([end_of(run) for run in runs]))
"""


class PoolBed:
    """A Slurm, and a cluster that borrows its nodes."""

    def __init__(self, folder: Path) -> None:
        self.slurm = SlurmBed()
        self.home = HomePaths(folder / "home")
        self.file = folder / "pool.yml"
        more = {"SLURM_CONF": str(self.slurm.conf), "JUPYTER_GPU_HOME": str(self.home.root)}
        self._environment = {**os.environ, **more, "JUPYTER_GPU_PRELOAD": "numpy"}
        self._launched: list[subprocess.Popen[str]] = []

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``jupyter gpu …``."""
        command = [sys.executable, "-m", "jupyter_gpu_release.cli", *words]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=300, check=False)

    def start(self, text: str) -> subprocess.CompletedProcess[str]:
        """``start --slurm`` with a file."""
        self.file.write_text(text)
        return self.command("start", "--slurm", str(self.file))

    def launch(self, gpus: int, *, times: int = 1, until: Path | str = "", **options: object) -> subprocess.Popen[str]:
        """Launch functions that last until a file is there; they print the GPUs that they had."""
        arguments = [json.dumps({"gpus": gpus, **options}), str(times), str(until)]
        command = [sys.executable, "-c", _LAUNCH, *arguments]
        process = subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)
        self._launched.append(process)
        return process

    def end_launched(self) -> None:
        """End what a failed test has left."""
        for process in self._launched:
            with process:
                process.kill()

    def waits(self) -> list[str]:
        """Why those that wait do so."""
        return [row.reason for row in self._status().queue]

    def nodes(self) -> list[NodeRow]:
        """The nodes as the gateway shows them."""
        return self._status().nodes

    def _status(self) -> StatusDocument:
        connection = running_connection(self.home)
        assert connection is not None
        with GatewayClient.for_target(target_of(connection), timeout_s=60) as gateway:
            return gateway.status()

    def set_node(self, name: str, state: str) -> None:
        """As an admin does."""
        self.slurm.ask("scontrol", "update", f"NodeName={name}", f"State={state}", "Reason=test")

    def says(self, words: str) -> bool:
        """Tell if somebody waits with these words."""
        return any(words in reason for reason in self.waits())


def answer(process: subprocess.Popen[str]) -> list[list[object]]:
    """The lines that a launch has printed."""
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0
    return list(json.loads(out.splitlines()[-1]))


def jobs_of(until: Path) -> list[str]:
    """The jobs on whose nodes a launched function has begun, one after the other."""
    path = Path(f"{until}.jobs")
    return path.read_text().split() if path.exists() else []


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolBed]:
    made = PoolBed(tmp_path_factory.mktemp("slurm"))
    try:
        yield made
    finally:
        made.end_launched()
        os.environ["SLURM_CONF"] = str(made.slurm.conf)
        stop_embedded(made.home)
        del os.environ["SLURM_CONF"]
        made.slurm.stop()


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
    monkeypatch.setitem(bed._environment, "PATH", "/nowhere")
    refused = bed.start(POOL)
    assert "Slurm's command sbatch is not on this machine" in refused.stderr


def test_small_runs_share_a_node_which_goes_back(bed: PoolBed) -> None:
    started = bed.start(POOL)
    assert started.returncode == 0, started.stderr
    assert bed.slurm.jobs() == []
    had = answer(bed.launch(1, times=2))
    assert [ids for ids, *_ in had] in (["0", "1"], ["1", "0"], ["0", "0"], ["1", "1"])  # one after the other, maybe
    wait_until(lambda: not bed.slurm.jobs(), "the end of the idle node's job")
    assert bed.slurm.ask("squeue", "-h", "-t", "all", "-o", "%T").split() == ["CANCELLED"]  # one for both


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
def test_when_a_node_fails_what_is_restartable_goes_on_elsewhere(pool: PoolBed, tmp_path: Path) -> None:
    go, never = tmp_path / "go", tmp_path / "never"
    restartable = pool.launch(1, until=go, restartable=True)
    wait_until(lambda: jobs_of(go), "the node")
    lost = pool.launch(1, until=never)
    wait_until(lambda: jobs_of(never) == jobs_of(go), "the other run on the same node")
    (name,) = pool.slurm.ask("squeue", "-h", "-o", "%N").split()
    pool.set_node(name, "DOWN")
    assert answer(lost) == [["RunLostError"]]
    wait_until(lambda: jobs_of(go)[1:], "the restartable run's second start")
    go.touch()
    assert len(answer(restartable)) == 1
    assert len(set(jobs_of(go))) == 2
    pool.set_node(name, "RESUME")


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


def test_two_jobs_on_one_host_give_their_own_gpu_each(
    bed: PoolBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    gpus = FakeGpus(build_library(tmp_path), tmp_path / "gpus")
    for name, value in {**gpus.environment, "JUPYTER_GPU_ENVIRONMENT": "FAKE_NVML"}.items():
        monkeypatch.setitem(bed._environment, name, value)
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
