"""Packages that a cell installs: there for the rest of the cell and what it starts, and gone with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_bed import Node, is_running
from wheel_bed import make_wheel

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.node import run_packages
from jupyter_gpu_release.node.run_packages import RunPackages, packages_folder, remove_left_packages

_CELL = """
{install}
import subprocess, sys
import extra_tools
spawned = [sys.executable, "-c", "import extra_tools, msgspec; print(extra_tools.__file__)"]
for command in (spawned, ["python", *spawned[1:]], ["pip", "--version"]):
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
print(extra_tools.__file__, sys.executable, extra_tools.__version__)
"""


@pytest.mark.parametrize("how", ["%pip install {}", "!pip install {}", "!{{sys.executable}} -m pip install {}"])
def test_what_a_cell_installs_is_its_own_and_gone_with_it(node: Node, tmp_path: Path, how: str) -> None:
    make_wheel(tmp_path, "extra-tools", "2.1", requires=["msgspec"])
    words = f"--quiet --disable-pip-version-check --no-index --find-links {tmp_path} extra-tools"
    run = node.run("import sys\n" + _CELL.format(install=how.format(words)), installs=True)
    assert run.outcome.status == "ok", run.outcome.error
    spawned, by_name, pip, *own = run.text().split()[-6:]
    place, python, version = own
    assert (spawned, by_name, pip, version) == (place, place, "pip", "2.1")
    folder = Path(python).parents[1]
    assert folder.name.startswith("jgr-packages-")
    assert Path(place).is_relative_to(folder)
    _until_gone(folder)
    (note,) = (each for each in run.outcome.notes if each.startswith("installed for this run, and gone with it: "))
    assert "extra_tools 2.1." in note
    assert "`--pip 'extra_tools==2.1'`" in note
    after = node.run("import sys, importlib.util\nprint(importlib.util.find_spec('extra_tools'), sys.executable)")
    assert after.text() == f"None {sys.executable}\n"


def test_it_goes_with_a_cell_that_is_killed(node: Node) -> None:
    run = node.start("import sys, time\nprint(sys.executable, flush=True)\ntime.sleep(1000)", installs=True)
    run.wait_for(lambda run: is_running(run) and run.text())
    folder = Path(run.text().strip()).parents[1]
    assert folder.is_dir()
    run.signal("kill")
    run.wait()
    _until_gone(folder)


def _until_gone(folder: Path) -> None:
    """Its supervisor removes it once the GPU is free."""
    for _ in range(3000):
        if not folder.exists():
            return
        time.sleep(0.01)
    pytest.fail(f"{folder} is still there")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(run_packages, "_ROOT", str(tmp_path))
    yield Path(packages_folder("a"))
    shutil.rmtree(tmp_path / "jgr-packages-a", ignore_errors=True)


def test_a_place_that_is_there_already_is_not_used(folder: Path) -> None:
    folder.mkdir()
    with pytest.raises(ClusterError, match="no place for packages of its own"):
        RunPackages(str(folder))
    assert list(folder.iterdir()) == []


_RANK = "import sys, time\nfrom jupyter_gpu_release.node.run_packages import RunPackages\n"


def test_what_a_killed_supervisor_has_left_is_removed_once_its_rank_has_ended(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "jgr-packages-b"
    other.symlink_to(tmp_path)
    hold = f"{_RANK}held = RunPackages(sys.argv[1])\nprint('there', flush=True)\ntime.sleep(1000)"
    rank = subprocess.Popen([sys.executable, "-c", hold, folder], stdout=subprocess.PIPE)
    try:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"there\n"
        remove_left_packages(time.time() + 100.0)
        assert folder.is_dir(), "its rank lives"
    finally:
        rank.kill()
        rank.communicate()
    remove_left_packages(time.time() - 100.0)
    assert folder.is_dir(), "it may just be made"
    remove_left_packages(time.time() + 100.0)
    assert not folder.exists()
    assert os.path.islink(other), "that is nobody's"
