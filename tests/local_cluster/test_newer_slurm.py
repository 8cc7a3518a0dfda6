"""Pools do on a newer Slurm what they do on this machine's: their own tests, over the one of Debian's next suite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from newer_slurm import over_usr, unpack_slurm
from slurm_bed import PROGRAMS
from soak import ONLY_IN_SOAK

pytestmark = [
    ONLY_IN_SOAK,
    pytest.mark.thorough,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)), reason="needs root, and Slurm"),
]
_HERE = Path(__file__).parent
#: that one asks its accounting database who may use a partition, and without one lets everybody in
_OF_OLDER_ONES = "test_slurm.py::test_what_slurm_would_refuse_is_said_before_anything_starts[text1"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "JUPYTER_GPU_SOAK"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3500, check=False)


def test_pools_on_a_newer_slurm(tmp_path: Path) -> None:
    root = unpack_slurm(tmp_path)
    ours, theirs = (_run(*command).stdout for command in (["slurmctld", "-V"], over_usr(root, "slurmctld", "-V")))
    assert _version(theirs) > _version(ours)
    modules = [str(path) for path in sorted(_HERE.glob("test_slurm*.py"))]
    skipped = ["--deselect", f"tests/local_cluster/{_OF_OLDER_ONES}"]
    done = _run(*over_usr(root, sys.executable, "-m", "pytest", "-q", *skipped, *modules))
    assert done.returncode == 0, done.stdout


def _version(said: str) -> list[int]:
    (found,) = re.findall(r"slurm-wlm (\d+)\.(\d+)", said)
    return [int(part) for part in found]
