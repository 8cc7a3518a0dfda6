"""Findings about the pool that Slurm lends."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_gpu_release.checks.finding import BROKEN, OK
from jupyter_gpu_release.checks.slurm import check_slurm
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.host.slurm import Slurm
from jupyter_gpu_release.host.slurm_answers import SlurmJob
from jupyter_gpu_release.protocol.config import GatewayConfig, SlurmPool


class _Slurm(Slurm):
    def __init__(self, *jobs: SlurmJob) -> None:
        super().__init__()
        self._jobs = list(jobs)

    def jobs(self, name: str) -> list[SlurmJob]:
        assert name == "jupyter-gpu-cafe"
        return self._jobs


def _home(folder: Path, pool: SlurmPool | None) -> HomePaths:
    config = GatewayConfig(
        home=str(folder), store="", token_file="", runtime="", ray_address="", cluster="cafe", slurm=pool
    )
    (folder / "gateway.json").write_bytes(msgspec.json.encode(config))
    return HomePaths(folder)


def test_a_cluster_without_a_pool_has_no_finding(tmp_path: Path) -> None:
    assert list(check_slurm(HomePaths(tmp_path))) == []
    assert list(check_slurm(_home(tmp_path, None))) == []


def test_the_jobs_of_the_pool_are_named(tmp_path: Path) -> None:
    home = _home(tmp_path, SlurmPool(max_nodes=3))
    (found,) = check_slurm(home, _Slurm(SlurmJob("7", "RUNNING"), SlurmJob("8", "PENDING")))
    assert (found.level, found.finding) == (OK, "Slurm answers; jobs of the pool: 7 running; 8 pending (at most 3)")
    (found,) = check_slurm(home, _Slurm())
    assert found.finding == "Slurm answers; jobs of the pool: none (at most 3)"


def test_slurm_that_is_missing_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (found,) = check_slurm(_home(tmp_path, SlurmPool(max_nodes=3)), Slurm({"PATH": "/nowhere"}))
    assert found.level == BROKEN
    assert found.finding == "Slurm's command squeue is not on this machine"
