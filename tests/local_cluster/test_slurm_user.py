"""A personal pool: somebody without root's rights borrows nodes of a real Slurm."""

from __future__ import annotations

import os
import pwd
import resource
import shutil

import pytest
from slurm_bed import PROGRAMS, SlurmBed
from unix_users import make_home, public_folder, python_for_all, run_python_as

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)), reason="needs root, and Slurm"),
]
_POOL = """
max_nodes: 1
gpus_per_node: 2
gres: gpu:2
cpus_per_node: 2
walltime: 1h
simulated_gpus: true
"""
_LAUNCH = """
from jupyter_gpu_release import launch
def look():
    import os, resource
    return os.getuid(), resource.getrlimit(resource.RLIMIT_CPU)[1]
print(*launch(look, gpus=1).result(timeout=200))
"""
#: as on a login node that ends what computes for long
_LIMITED_START = """
import resource, sys
from jupyter_gpu_release.cli.main import main
resource.setrlimit(resource.RLIMIT_CPU, (1800, 1800))
sys.exit(main(["start", "--slurm", sys.argv[1]]))
"""
_CLI = ("-m", "jupyter_gpu_release.cli")


def test_an_ordinary_user_has_a_pool_of_their_own() -> None:
    user = pwd.getpwnam("nobody")  # Slurm knows users by their accounts
    with public_folder() as folder:
        python = python_for_all(folder)
        home = make_home(folder, user.pw_uid)
        (home / "pool.yml").write_text(_POOL)
        (home / "pool.yml").chmod(0o644)
        slurm = SlurmBed(python)
        more = {"SLURM_CONF": str(slurm.conf), "JUPYTER_GPU_HOME": str(home / "jgr"), "JUPYTER_GPU_PRELOAD": "numpy"}
        try:
            run_python_as(python, user.pw_uid, ["-c", _LIMITED_START, str(home / "pool.yml")], home, more)
            said = run_python_as(python, user.pw_uid, ["-c", _LAUNCH], home, more)
            _, unlimited = resource.getrlimit(resource.RLIMIT_CPU)
            assert said.split()[-2:] == [str(user.pw_uid), str(unlimited)]  # the node's limits, not the login node's
            assert slurm.ask("squeue", "-h", "-o", "%u %T").split() == ["nobody", "RUNNING"]
            run_python_as(python, user.pw_uid, [*_CLI, "stop", "--yes"], home, more)
            assert slurm.jobs() == []
        finally:
            run_python_as(python, user.pw_uid, [*_CLI, "stop", "--yes"], home, more)
            slurm.stop()
