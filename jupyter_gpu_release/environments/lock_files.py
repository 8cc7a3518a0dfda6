"""Lock files: ``pylock.toml`` (PEP 751), and ``uv.lock``, which uv itself writes down as one.

Versions and hashes are taken from it. Where a wheel lies is the operator's index to say.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from ..errors import ClusterError, OptionError
from .installer import find_installer

_UV_LOCK = "uv.lock"
_PYLOCK = re.compile(r"pylock\.([^.]+\.)?toml\Z")
#: what nodes install comes from an index; a project itself is none of its packages
_EXPORT = ("--format", "pylock.toml", "--frozen", "--offline", "--no-cache", "--no-dev", "--no-emit-workspace")
_EXPORT_S = 30
_WRITE_IT_SO = "write it with `uv export --no-emit-project -o pylock.toml`, and have what it names on the nodes' index"


class LockedPackages(NamedTuple):
    """Name → version, and name → hashes (``sha256:…``) of the wheels that may be installed."""

    versions: dict[str, str]
    hashes: dict[str, list[str]]


class _Wheel(msgspec.Struct, frozen=True):
    name: str = ""
    url: str = ""
    path: str = ""
    hashes: dict[str, str] = {}

    @property
    def file_name(self) -> str:
        return self.name or unquote(urlsplit(self.url or self.path).path).rpartition("/")[2]


class _Package(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    marker: str = ""
    wheels: list[_Wheel] = []
    vcs: dict[str, object] | None = None
    directory: dict[str, object] | None = None
    archive: dict[str, object] | None = None


class _Lock(msgspec.Struct, frozen=True, rename="kebab"):
    lock_version: str
    requires_python: str = ""
    default_groups: list[str] = []
    packages: list[_Package] = []


def is_lock(name: str) -> bool:
    """Tell if a file of this name is a lock file."""
    return name.rpartition("/")[2] == _UV_LOCK or _PYLOCK.match(name.rpartition("/")[2]) is not None


def read_lock(path: Path, content: str) -> LockedPackages:
    """Packages that a lock file has for this Python; raises :class:`OptionError`."""
    try:
        text = _exported(path.parent, content, _time(path)) if path.name == _UV_LOCK else content
        lock = msgspec.convert(tomllib.loads(text), _Lock)
        _check_python(path, lock.requires_python)
        groups = frozenset(lock.default_groups)
        chosen = [each for each in lock.packages if _holds(each.marker, groups)]
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, InvalidMarker, UndefinedEnvironmentName) as error:
        raise OptionError(f"{path}: {' '.join(str(error).split())}", hint=_WRITE_IT_SO) from error
    versions: dict[str, str] = {}
    for each in chosen:
        name = str(canonicalize_name(each.name))
        if not each.version or each.vcs or each.directory or each.archive or name in versions:
            why = "is there twice" if name in versions else "comes from no index"
            raise OptionError(f"{path}: {each.name} {why}", hint=_WRITE_IT_SO)
        versions[name] = each.version
    return LockedPackages(versions, {str(canonicalize_name(each.name)): _hashes(path, each) for each in chosen})


def _time(path: Path) -> int:
    """The project's file is read by uv, too."""
    project = path.with_name("pyproject.toml")
    if not project.is_file():
        raise OptionError(f"{path}: there is no pyproject.toml beside it", hint="copy it there: uv reads both")
    return project.stat().st_mtime_ns


@functools.lru_cache(maxsize=16)
def _exported(folder: Path, _content: str, _time_ns: int) -> str:
    """``uv.lock`` as a ``pylock.toml``, once for each content of both files."""
    command = [_uv(folder), "export", *_EXPORT, "--project", str(folder), "--python", sys.executable]
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_EXPORT_S, env=environ, check=False)
    except subprocess.TimeoutExpired:
        raise OptionError(f"{folder / _UV_LOCK}: uv has not read it in {_EXPORT_S} s", hint=_WRITE_IT_SO) from None
    if done.returncode:
        raise OptionError(f"{folder / _UV_LOCK}: uv says: {done.stderr.strip()[-300:]}", hint=_WRITE_IT_SO)
    return done.stdout


def _uv(folder: Path) -> str:
    try:
        return find_installer()
    except ClusterError as error:
        raise OptionError(f"{folder / _UV_LOCK}: {error.message}", hint=_WRITE_IT_SO) from error


def _check_python(path: Path, required: str) -> None:
    here = platform.python_version()
    try:
        if required and not SpecifierSet(required).contains(here, prereleases=True):
            raise OptionError(
                f"{path}: it is for Python {required}, and the cluster has {here}", hint="lock it for that Python, too"
            )
    except InvalidSpecifier as error:
        raise OptionError(f"{path}: requires-python: {error}", hint=_WRITE_IT_SO) from error


def _holds(marker: str, groups: frozenset[str]) -> bool:
    facts: dict[str, str | Set[str]] = {"extra": "", "extras": frozenset[str](), "dependency_groups": groups}
    return not marker or Marker(marker).evaluate(facts)


def _hashes(path: Path, package: _Package) -> list[str]:
    """Hashes of its wheels for this Python, on Linux of any machine."""
    here = {(tag.interpreter, tag.abi) for tag in sys_tags()}
    found = []
    for wheel in package.wheels:
        try:
            tags = parse_wheel_filename(wheel.file_name)[3]
        except InvalidWheelFilename:
            continue
        fits = any((tag.interpreter, tag.abi) in here and _is_linux(tag.platform) for tag in tags)
        if fits and "sha256" in wheel.hashes:
            found.append(f"sha256:{wheel.hashes['sha256']}")
    if not found:
        raise OptionError(
            f"{path}: it has no wheel of {package.name} {package.version} for Python {platform.python_version()}",
            hint="nodes install wheels only; lock it for Linux and the cluster's Python",
        )
    return sorted(found)


def _is_linux(platform_tag: str) -> bool:
    return platform_tag == "any" or "linux" in platform_tag
