"""Other Pythons of a node, as the operator names them: real interpreters and a real virtual environment."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import platform
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from managed_python import VERSION, pack_python, python_mirror
from uv import find_uv_bin
from wheel_bed import install, make_wheel

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.node.environments.builder import Environments
from jupyter_gpu_release.node.environments.installer import Installer, Sources
from jupyter_gpu_release.node.environments.pythons import FoundPython, Pythons
from jupyter_gpu_release.protocol.environments import Origin, Plan, named_by_content


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


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A Python to be fetched."""
    return pack_python(tmp_path_factory.mktemp("archive") / "python.tar.gz")


def test_a_version_that_is_not_there_is_fetched(tmp_path: Path, archive: bytes) -> None:
    """By uv itself, which checks its hash; nothing gets into the home of the agent's user."""
    (tmp_path / "home").mkdir()
    with python_mirror(tmp_path / "home", archive) as mirror:
        installer = Installer(tmp_path / "cache", Sources(), mirror.variables)
        with pytest.raises(ClusterError, match=f"the node has no Python {VERSION} yet"):
            asyncio.run(Pythons(installer, tmp_path).look(VERSION))
        assert not mirror.has_sent.is_set(), "doctor fetches nothing"
        found = asyncio.run(Pythons(installer, tmp_path).find(VERSION))
    assert Path(found.python).is_relative_to(tmp_path / "pythons")
    assert (found.version, found.behind) == (platform.python_version(), [])
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["downloads.json"]
    root = tmp_path / "root"
    root.mkdir()
    plan = named_by_content(Plan(found.version, found.platform, interpreter=VERSION))
    built = asyncio.run(Environments(root, _installer(root), ["/not/behind"]).build(plan, {}, 120.0, found))
    code = "import sys; print(sys.base_prefix)"
    ran = subprocess.run([built / "bin" / "python", "-c", code], capture_output=True, text=True, cwd="/", check=False)
    assert Path(ran.stdout.strip()).is_relative_to(tmp_path / "pythons")


def test_a_conda_environment_is_a_folder_too(tmp_path: Path, archive: bytes) -> None:
    """It has a Python of its own, with its library, and says of its packages that conda has installed them."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(tmp_path, filter="data")
    folder = (tmp_path / "python").rename(tmp_path / "conda")
    (folder / "bin" / "python").symlink_to(f"python{VERSION}")
    (folder / "conda-meta").mkdir()
    (folder / "conda-meta" / "history").touch()
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run([folder / "bin" / "python", "-I", "-c", where], capture_output=True, text=True, check=True)
    site = Path(told.stdout.strip())
    assert site.is_relative_to(folder)
    site.mkdir(parents=True, exist_ok=True)
    metadata = install(make_wheel(tmp_path / "wheels", "theirs", files={"theirs.py": "x = 7\n"}), site)
    (metadata / "INSTALLER").write_text("conda\n")
    (metadata / "direct_url.json").write_text('{"dir_info": {}, "url": "file:///home/feedstock/work"}')
    found = _find(tmp_path, str(folder))
    assert [(each.name, each.origin) for each in found.installed().distributions] == [("theirs", Origin.CONDA)]
    root = tmp_path / "root"
    root.mkdir()
    plan = named_by_content(Plan(found.version, found.platform, interpreter=str(folder)))
    built = asyncio.run(Environments(root, _installer(root), ["/not/behind"]).build(plan, {}, 120.0, found))
    code = "import sys, theirs, jupyter_gpu_release.node as ours\n"
    code += "print(theirs.x, sys.prefix, sys.base_prefix, ours.__file__)"
    ran = subprocess.run([built / "bin" / "python", "-c", code], capture_output=True, text=True, cwd="/", check=False)
    seven, prefix, base, ours = ran.stdout.split()
    assert (seven, prefix, base) == ("7", str(built), str(folder))
    assert Path(ours).is_relative_to(built)


def test_a_python_of_another_hash_is_not_taken(tmp_path: Path, archive: bytes) -> None:
    with python_mirror(tmp_path, archive) as mirror:
        listed = tmp_path / "downloads.json"
        listed.write_text(listed.read_text().replace(hashlib.sha256(archive).hexdigest(), "0" * 64))
        installer = Installer(tmp_path / "cache", Sources(), mirror.variables)
        with pytest.raises(ClusterError, match=f"the nodes have no Python {VERSION}: .*[Hh]ash mismatch"):
            asyncio.run(Pythons(installer, tmp_path).find(VERSION))
    assert _fetched(tmp_path) == []


def test_a_fetch_that_is_ended_half_way_leaves_nothing(tmp_path: Path, archive: bytes) -> None:
    """Another one that goes on is left alone."""
    with python_mirror(tmp_path, archive, is_whole=False) as mirror:
        installer = Installer(tmp_path / "cache", Sources(), mirror.variables)
        pythons, partial = Pythons(installer, tmp_path), tmp_path / "pythons" / ".temp"

        async def play() -> None:
            search = asyncio.create_task(pythons.find(VERSION))
            while not list(partial.glob("*/python/lib/*/*")):
                await asyncio.sleep(0.01)
            pythons.remove_leftovers()
            assert list(partial.glob("*/python/lib/*/*"))
            search.cancel()
            await asyncio.wait({search})
            assert search.cancelled()

        asyncio.run(play())
    assert _fetched(tmp_path) == []


def test_what_a_killed_agent_has_fetched_in_part_goes_later(tmp_path: Path) -> None:
    (tmp_path / "pythons" / ".temp" / "half").mkdir(parents=True)
    (tmp_path / "pythons" / ".lock").touch()
    Pythons(_installer(tmp_path), tmp_path).remove_leftovers()
    assert _fetched(tmp_path) == []


def _fetched(folder: Path) -> list[Path]:
    """Pythons, and parts of some."""
    kept = (each for each in (folder / "pythons").iterdir() if each.name not in (".temp", ".lock", ".gitignore"))
    return [*kept, *(folder / "pythons" / ".temp").iterdir()]


@pytest.mark.parametrize("when", ["it runs", "it starts"])
def test_a_search_that_is_ended_half_way_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Also none that the interpreter has started, while the loop has not heard yet that itself has."""
    started = tmp_path / "started"
    hangs = tmp_path / "python"
    hangs.write_text(f"#!/bin/sh\nsleep 1000 &\necho $$ $! > {started}.new\nmv {started}.new {started}\nwait\n")
    hangs.chmod(0o755)
    start = asyncio.create_subprocess_exec

    async def play() -> list[int]:
        is_known = asyncio.Event()

        async def start_slowly(*command: Any, **options: Any) -> Any:
            process = await start(*command, **options)
            await is_known.wait()
            return process

        if when == "it starts":
            monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
        search = asyncio.create_task(Pythons(_installer(tmp_path), tmp_path).find(str(hangs)))
        while not started.exists():
            await asyncio.sleep(0.01)
        search.cancel()
        asyncio.get_running_loop().call_later(0.01, is_known.set)
        await asyncio.wait({search})
        assert search.cancelled()
        return [int(each) for each in started.read_text().split()]

    pids = asyncio.run(play())
    assert len(pids) == 2
    while any(_runs(pid, words) for pid, words in zip(pids, (str(hangs), "sleep"), strict=True)):  # the signal was sent
        time.sleep(0.01)


def _runs(pid: int, words: str) -> bool:
    """A zombie has no command, and on a busy machine another process has the number soon."""
    with contextlib.suppress(OSError):
        return words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_version_that_cannot_be_had_is_said(tmp_path: Path, is_offline: bool) -> None:
    """Where there is an index the installer tries to fetch it."""
    environ = {"PATH": "/nowhere", "HOME": str(tmp_path), "UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9"}
    installer = Installer(tmp_path / "cache", Sources(offline=is_offline), {**environ, "UV_HTTP_RETRIES": "0"})
    with pytest.raises(ClusterError, match=r"the nodes have no Python 3\.14") as caught:
        asyncio.run(Pythons(installer, tmp_path).find("3.14"))
    assert ("127.0.0.1" in caught.value.message) is not is_offline
