"""The processes that a rank leaves, as the system lets go of them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.host.process_control import RUN_MARKER, least_limit

#: the system needs some 100 ms to let go of it; the process's files are closed only after that
_HOLDS = "held = bytearray(b'1') * (1 << 30); print(flush=True); import time; time.sleep(1000)"


def _looks_at_the_end(monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the process is found from its kill on; then it has ended."""
    environment = {**os.environ, RUN_MARKER: "20260101-000000-00000001"}
    with subprocess.Popen([sys.executable, "-c", _HOLDS], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        # a look at all processes of a busy machine may take longer than the end of this one
        monkeypatch.setattr(psutil, "pids", lambda: [process.pid])
        looks = 0
        process.kill()
        while process.pid in process_control.left_by(os.getpid(), "no memory's name", environment[RUN_MARKER]):
            looks += 1
        assert process_control.is_gone(process.pid)
    return looks


def test_a_process_whose_memory_is_let_go_is_left_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no environment and no memory map any more, by which it was known."""
    assert any(_looks_at_the_end(monkeypatch) for _ in range(10))


@pytest.mark.parametrize(
    ("cgroups", "job", "file"),
    [
        ("0::/slurm/job_7/step_batch\n", "slurm/job_7", "memory.max"),
        ("4:cpu:/x\n3:memory:/slurm/job_7/step_batch\n", "memory/slurm/job_7", "memory.limit_in_bytes"),
    ],
)
def test_the_memory_of_a_batch_job_is_its_cgroups_limit(tmp_path: Path, cgroups: str, job: str, file: str) -> None:
    own, group = tmp_path / "proc/self", tmp_path / "sys/fs/cgroup" / job
    own.mkdir(parents=True)
    (own / "cgroup").write_text(cgroups)
    (group / "step_batch").mkdir(parents=True)
    (group / "step_batch" / file).write_text("max\n")
    assert least_limit("memory", tmp_path) == math.inf
    (group / file).write_text("2000\n")
    group.parent.joinpath(file).write_text("9000\n")
    assert least_limit("memory", tmp_path) == 2000
