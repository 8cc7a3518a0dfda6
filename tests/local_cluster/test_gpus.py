"""The machine's GPUs through the real pynvml over a fake ``libnvidia-ml.so.1`` (``tests/harness/fake_nvml.c``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_bed import build_library

from jupyter_gpu_release.local_cluster.start import usable_gpus

Run = Callable[..., subprocess.CompletedProcess[str]]

_TWO = "gpu A100 GPU-1 1000 100 40\ngpu A100 GPU-2 1000 0 0\n"


@pytest.fixture(scope="module")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def with_gpus(fake_library: Path, tmp_path: Path) -> Run:
    """Run Python in a process that sees two fake A100."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        state = tmp_path / "state"
        state.write_text(_TWO)
        base = {**os.environ, "LD_LIBRARY_PATH": str(fake_library), "FAKE_NVML": str(state)}
        base |= {"JUPYTER_GPU_HOME": str(tmp_path / "home")}
        return subprocess.run(
            [sys.executable, *arguments], env=base | environment, capture_output=True, text=True, check=False
        )

    return run


def test_doctor_sees_gpus_driver_and_a_framework_that_cannot_use_them(with_gpus: Run) -> None:
    done = with_gpus("-m", "jupyter_gpu_release.cli", "doctor", "--json")
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["nvml"]["finding"] == "2 GPUs: A100, A100; driver 999.1, CUDA 13.0"
    if "CPU build" in findings["cuda"]["finding"]:
        assert findings["cuda"]["level"] == "broken"
        assert done.returncode == 1
    else:
        assert "the driver" in findings["cuda"]["finding"]


@pytest.mark.parametrize(
    ("asked", "visible", "chosen"),
    [
        ("None, None", None, "(2, False)"),
        ("None, None", "1", "(1, False)"),
        ("None, None", "", "(4, True)"),
        ("1, None", None, "(1, False)"),
        ("None, 3", None, "(3, True)"),
    ],
)
def test_which_gpus_a_start_takes(with_gpus: Run, asked: str, visible: str | None, chosen: str) -> None:
    code = f"from jupyter_gpu_release.local_cluster.start import choose_gpus; print(choose_gpus({asked}))"
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = with_gpus("-c", code, **environment)
    assert done.stdout.strip() == chosen, done.stderr


def test_more_than_there_are(with_gpus: Run) -> None:
    done = with_gpus("-m", "jupyter_gpu_release.cli", "start", "--gpus", "3")
    assert done.returncode == 1
    assert done.stderr == (
        "--gpus 3: this machine has 2 usable NVIDIA GPUs\n  → ask for at most 2, or use --simulated-gpus 3\n"
    )


def test_hidden_gpus_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb")
    assert usable_gpus(3) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-aa,MIG-bb,MIG-cc,MIG-dd")
    assert usable_gpus(3) == 4
    assert usable_gpus(0) == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert usable_gpus(3) == 0
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert usable_gpus(3) == 3
