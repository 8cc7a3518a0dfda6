"""The process of one pool job: what it is given, and what it says when it cannot begin."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
from ports import free_port

from jupyter_gpu_release.client.home import Connection, HomePaths
from jupyter_gpu_release.errors import ClusterError, ConflictError
from jupyter_gpu_release.host.slurm import Slurm
from jupyter_gpu_release.local_cluster.slurm_worker import address_towards, given_gpus, make_own_folder, read_config
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded
from jupyter_gpu_release.protocol.config import GatewayConfig, SlurmPool


def run_worker(home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jupyter_gpu_release.local_cluster.slurm_worker", str(home), "cafe"]
    environment = {**os.environ, "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_node_without_the_home_says_so(tmp_path: Path) -> None:
    ended = run_worker(tmp_path)
    assert ended.returncode == 1
    assert f"cannot read {tmp_path}/gateway.json" in ended.stdout
    assert "set JUPYTER_GPU_HOME to a folder that compute nodes see" in ended.stdout


def test_a_node_that_cannot_reach_the_head_says_so(tmp_path: Path) -> None:
    config = GatewayConfig(
        home=str(tmp_path),
        store="",
        token_file="",
        runtime=str(tmp_path / "runtime"),
        ray_address=f"127.0.0.1:{free_port()}",
        simulated=True,
        cluster="cafe",
        slurm=SlurmPool(max_nodes=1),
    )
    (tmp_path / "gateway.json").write_bytes(msgspec.json.encode(config))
    ended = run_worker(tmp_path)
    assert ended.returncode == 1
    assert f"cannot reach the head at {config.ray_address}" in ended.stdout
    assert "set address:" in ended.stdout
    assert not (tmp_path / "runtime").exists()


def test_a_node_joins_no_other_cluster_than_its_own(tmp_path: Path) -> None:
    config = GatewayConfig(home="", store="", token_file="", runtime="", ray_address="", cluster="next")
    (tmp_path / "gateway.json").write_bytes(msgspec.json.encode(config))
    with pytest.raises(ClusterError, match="the cluster that asked for this node is gone"):
        read_config(tmp_path, "cafe")


def test_start_and_stop_leave_a_cluster_of_another_machine_alone(tmp_path: Path) -> None:
    home = HomePaths(tmp_path)
    home.create()
    home.write_connection(Connection("http://127.0.0.1:1", "", "", cluster="cafe", host="login1"))
    for act in (partial(start_embedded, asked=StartOptions(simulated=1), progress=print), stop_embedded):
        with pytest.raises(ConflictError, match="was started on login1"):
            act(home=home)
    assert home.connection.exists()


def test_its_address_is_the_one_on_the_way_to_the_head() -> None:
    with socket.create_server(("127.0.0.1", 0)) as head:
        assert address_towards(f"127.0.0.1:{head.getsockname()[1]}") == "127.0.0.1"


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "jgr-1"
    make_own_folder(folder)
    make_own_folder(folder)  # of another job of this user's
    folder.chmod(0o777)
    with pytest.raises(ClusterError, match="is not this user's alone"):
        make_own_folder(folder)
    (tmp_path / "jgr-2").symlink_to(tmp_path)
    with pytest.raises(ClusterError, match="is not this user's alone"):
        make_own_folder(tmp_path / "jgr-2")
    with pytest.raises(ClusterError, match="cannot make"):
        make_own_folder(tmp_path / "none" / "jgr-3")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "jgr-1"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    with pytest.raises(ClusterError, match="is not this user's alone"):
        make_own_folder(folder)


@pytest.mark.parametrize(
    ("variable", "value", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES", "2,3", ["2", "3"]),
        ("SLURM_JOB_GPUS", "2,3", ["2", "3"]),
        ("CUDA_VISIBLE_DEVICES", "GPU-8f,GPU-9a", ["GPU-8f", "GPU-9a"]),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", ["5"]),
        ("CUDA_VISIBLE_DEVICES", "", ["5"]),
    ],
)
def test_its_gpus_are_those_that_slurm_gave(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, gpus: list[str]
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(Slurm, "gpus_of", lambda _slurm, job: ["5"] if job == "7" else [])
    assert given_gpus("7") == gpus
