"""Other Pythons of a node, as the operator names them: real interpreters and a real virtual environment."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin
from wheel_bed import install, make_wheel

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.node.environments.builder import Environments
from jupyter_gpu_release.node.environments.installer import Installer, Sources
from jupyter_gpu_release.node.environments.pythons import FoundPython, Pythons
from jupyter_gpu_release.protocol.environments import Plan, named_by_content


def _installer(folder: Path) -> Installer:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9"}
    return Installer(folder / "cache", Sources(offline=True), environ)


def _find(folder: Path, name: str) -> FoundPython:
    return asyncio.run(Pythons(_installer(folder), folder).find(name))


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A virtual environment that somebody else keeps, with a package of his and one of ours that is old."""
    folder = tmp_path / "theirs"
    subprocess.run([find_uv_bin(), "venv", "--quiet", "--no-project", "--python", sys.executable, folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name, files in (("theirs", {"theirs.py": "x = 7\n"}), ("jupyter-gpu-release", {"old.py": ""})):
        install(make_wheel(tmp_path / "wheels", name, files=files), site)
    return folder


def test_an_interpreter_tells_what_packages_are_made_for(tmp_path: Path) -> None:
    found = _find(tmp_path, sys.executable)
    assert (found.version, found.behind, found.installed().distributions) == (platform.python_version(), [], [])
    assert found.markers["python_full_version"] == platform.python_version()


def test_a_folder_has_its_packages_and_an_environment_in_front_of_it_this_package(tmp_path: Path, theirs: Path) -> None:
    found = _find(tmp_path, str(theirs))
    assert [each.name for each in found.installed().distributions] == ["theirs"]
    root = tmp_path / "root"
    root.mkdir()
    plan = named_by_content(Plan(found.version, found.platform, interpreter=str(theirs)))
    built = asyncio.run(Environments(root, _installer(root), ["/not/behind"]).build(plan, {}, 120.0, found))
    code = "import sys, theirs, jupyter_gpu_release.node as ours\n"
    code += "print(theirs.x, ours.__file__, '/not/behind' in sys.path)"
    ran = subprocess.run([built / "bin" / "python", "-c", code], capture_output=True, text=True, cwd="/", check=False)
    seven, ours, is_behind = ran.stdout.split()
    assert (seven, is_behind) == ("7", "False")
    assert Path(ours).is_relative_to(built)


@pytest.mark.parametrize("name", ["/nowhere/python", "/etc/passwd", "/bin/false", "/bin/true"])
def test_what_is_no_python_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match=f"{name} is no Python of the nodes") as caught:
        _find(tmp_path, name)
    assert "the operator corrects it" in caught.value.hint


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_version_that_cannot_be_had_is_said(tmp_path: Path, is_offline: bool) -> None:
    """Where there is an index the installer tries to fetch it."""
    environ = {"PATH": "/nowhere", "HOME": str(tmp_path), "UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9"}
    installer = Installer(tmp_path / "cache", Sources(offline=is_offline), {**environ, "UV_HTTP_RETRIES": "0"})
    with pytest.raises(ClusterError, match=r"the nodes have no Python 3\.14") as caught:
        asyncio.run(Pythons(installer, tmp_path).find("3.14"))
    assert ("127.0.0.1" in caught.value.message) is not is_offline
