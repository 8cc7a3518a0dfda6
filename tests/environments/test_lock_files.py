"""Lock files of named environments: those that uv writes, and what is wrong with others."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from wheel_bed import WheelIndex, make_wheel

from jupyter_gpu_release.environments.installer import find_installer
from jupyter_gpu_release.environments.named import read_environments
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.protocol.environments import NamedEnvironment

_PROJECT = """
[project]
name = "vision"
version = "1"
requires-python = ">=3.11"
dependencies = ["tools", "elsewhere; sys_platform == 'win32'"]
[dependency-groups]
dev = ["tester"]
"""


def _read(folder: Path, lock: str) -> NamedEnvironment:
    (folder / "environments.yaml").write_text(
        f"schema_version: 1\nenvironments: [{{name: vision, requirements: {lock}}}]"
    )
    (found,) = read_environments(folder / "environments.yaml").environments
    return found.environment


def _uv(folder: Path, *words: str) -> None:
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_CONFIG": "1"}
    command = [find_installer(), *words, "--no-cache", "--project", str(folder)]
    subprocess.run(command, check=True, env=environ, capture_output=True, timeout=60)


def test_what_uv_has_locked_is_read_with_its_hashes(tmp_path: Path) -> None:
    wheels, project = tmp_path / "wheels", tmp_path / "project"
    wheel = make_wheel(wheels, "tools", "1.1", requires=["below_it>=2"])
    below = make_wheel(wheels, "below_it", "2.0")
    make_wheel(wheels, "tools", "1.1", requires=["below_it>=2"], tag="cp311-cp311-win_amd64")
    for name in ("tester", "elsewhere"):
        make_wheel(wheels, name)
    project.mkdir()
    (project / "pyproject.toml").write_text(_PROJECT)
    with WheelIndex(wheels) as index:
        _uv(project, "lock", "--default-index", index.url())
    _uv(project, "export", "--frozen", "--no-dev", "--no-emit-project", "--output-file", str(project / "pylock.toml"))
    locked = _read(project, "uv.lock")
    assert (sorted(locked.requirements), locked.is_locked) == (["below-it==2.0", "tools==1.1"], True)
    assert locked.hashes == {
        name: [f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"]
        for name, path in (("tools", wheel), ("below-it", below))
    }
    assert _read(project, "pylock.toml") == locked
    (project / "pyproject.toml").unlink()
    with pytest.raises(OptionError, match=r"there is no pyproject.toml beside it"):
        _read(project, "uv.lock")


_WHEELS = f"wheels = [{{url = 'https://u:secret@i/a-1-py3-none-any.whl', hashes = {{sha256 = '{'0' * 64}'}}}}]"


def _package(facts: str, more: str = "") -> str:
    return f"lock-version = '1.0'\n{more}\n[[packages]]\nname = 'a'\n{facts}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lock-version = ", "Invalid value"),
        ("x = 1", "missing required field `lock-version`"),
        (_package(_WHEELS), "a comes from no index"),
        (_package("version = '1'\ndirectory = {path = '.'}"), "a comes from no index"),
        (_package("version = '1'\nwheels = []"), "it has no wheel of a 1 for Python 3."),
        (_package(f"version = '1'\n{_WHEELS.replace('py3-none-any', 'cp27-cp27m-linux_x86_64')}"), "no wheel of a 1"),
        (_package(f"version = '1'\n{_WHEELS}", "requires-python = '<3'"), "it is for Python <3, and the cluster has 3"),
        (_package(f"version = '1'\n{_WHEELS}", "requires-python = 'x'"), "requires-python: "),
        (_package(f"version = '1'\nmarker = 'x'\n{_WHEELS}"), "pylock.toml: "),
        (_package(f"version = '1\\n--index-url x'\n{_WHEELS}"), "is not a package's name and versions"),
        (_package(f"version = '1'\n{_WHEELS}\n[[packages]]\nname = 'A'\nversion = '2'\n{_WHEELS}"), "A is there twice"),
    ],
)
def test_mistakes_are_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(text)
    with pytest.raises(OptionError) as caught:
        _read(tmp_path, "pylock.toml")
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_group_and_another_system_are_left_out(tmp_path: Path) -> None:
    markers = ("'dev' in dependency_groups", "'x' in extras", "sys_platform == 'win32'")
    packages = "".join(f'\n[[packages]]\nname = "b"\nmarker = "{each}"' for each in markers)
    (tmp_path / "pylock.team.toml").write_text(_package(f"version = '1'\n{_WHEELS}{packages}"))
    assert _read(tmp_path, "pylock.team.toml").requirements == ["a==1"]
