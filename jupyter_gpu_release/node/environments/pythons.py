"""Finds other Pythons on this node: by a version, by the path of an interpreter, or by the folder of an environment."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from glob import escape as glob_escape
from glob import glob
from pathlib import Path
from typing import NamedTuple

import packaging

from ...environments.installed import InstalledReader
from ...errors import ClusterError
from ...protocol.environments import OURS, Installed
from ...units import format_seconds
from .installer import Installer, InstallerError, run_program

#: run in the other Python with the folder of our ``packaging``
_FACTS = """
import json, os, platform, sys, sysconfig
folders = [each for each in sys.path if os.path.basename(each.rstrip("/")) in ("site-packages", "dist-packages")]
sys.path.insert(0, sys.argv[1])  # whatever an editable package of the other has
from packaging.markers import default_environment
print(json.dumps([platform.python_version(), sysconfig.get_platform(), default_environment(), folders]))
"""
_ANSWER_S = 30.0
_CURE = "the operator corrects it in the file of named environments, or installs it on the nodes"


class FoundPython(NamedTuple):
    """An interpreter. ``behind``: folders of packages that come behind those of an environment for it."""

    python: str
    behind: list[str]
    version: str
    platform: str
    markers: dict[str, str]

    def installed(self) -> Installed:
        """Packages that are there already; ours would be another version's."""
        found = InstalledReader(self.behind).read().distributions if self.behind else []
        return Installed.of(self.version, self.platform, self.markers, [each for each in found if each.name != OURS])


class Pythons:
    """Those of one node. ``folder``: to call the installer in. ``only_roots``: no other user may change them."""

    def __init__(self, installer: Installer, folder: Path, *, only_roots: bool = False) -> None:
        self._only_roots = only_roots
        self._installer = installer
        self._folder = folder
        self._known: dict[str, FoundPython] = {}

    async def find(self, name: str) -> FoundPython:
        """Return the Python of this name; of a version that is not here the installer's, where it may fetch it.

        Raises :class:`ClusterError`.
        """
        known = self._known.get(name)
        if known is None or not os.path.exists(known.python):
            known = self._known[name] = await self._facts(name, await self._path(name))
        return known

    async def look(self, name: str) -> FoundPython:
        """Return it as it is now, and fetch nothing. Raises :class:`ClusterError`."""
        return await self._facts(name, await self._path(name, may_fetch=False))

    async def _facts(self, name: str, python: str) -> FoundPython:
        command = [python, "-I", "-c", _FACTS, str(Path(packaging.__file__).parents[1])]
        environ = {"PATH": os.environ.get("PATH", os.defpath), **self._installer.marks}
        if self._only_roots and (writable := await asyncio.to_thread(_writable, name, python)):
            raise ClusterError(
                f"{writable} is not root's alone, so root does not start Python {name}",
                hint="the operator has root own it, and nobody else write to it (`chown -R root`, `chmod -R go-w`)",
            )
        try:
            async with asyncio.timeout(_ANSWER_S):
                ended = await run_program(command, Path("/"), environ)
            version, platform, markers, folders = json.loads(ended.output)
        except TimeoutError:
            raise _unfit(name, f"it has not answered within {format_seconds(_ANSWER_S)}") from None
        except OSError as error:
            raise _unfit(name, error.strerror or str(error)) from error
        except ValueError as error:
            raise _unfit(name, ended.words.strip() or "it does not answer as a Python does") from error
        return FoundPython(python, folders if os.path.isdir(name) else [], version, platform, markers)

    async def _path(self, name: str, *, may_fetch: bool = True) -> str:
        if name.startswith("/"):
            return f"{name}/bin/python" if os.path.isdir(name) else name
        find = ["python", "find", "--no-project", name]
        try:
            return (await self._installer.call(find, self._folder)).strip()
        except InstallerError as error:
            if not self._installer.has_index:  # no network
                raise _lacking(name, error.words) from error
            if not may_fetch:
                raise ClusterError(
                    f"the node has no Python {name} yet",
                    hint="uv fetches it for the first kernel that needs it; without a way out, install it there",
                ) from error
        try:
            await self._installer.call(["python", "install", name], self._folder)
            return (await self._installer.call(find, self._folder)).strip()
        except InstallerError as error:
            raise _lacking(name, error.words) from error
        finally:
            await asyncio.shield(asyncio.to_thread(self.remove_leftovers))

    def remove_leftovers(self) -> None:
        """Remove what a fetch that was ended half-way has left, unless another one goes on: uv has its lock then."""
        with contextlib.suppress(OSError), (self._installer.pythons / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for partial in (self._installer.pythons / ".temp").iterdir():
                shutil.rmtree(partial, ignore_errors=True)


def _writable(name: str, python: str) -> str:
    """A path by which another user than root could change this Python, or its folder; empty: there is none."""
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    trees = [name] if os.path.isdir(name) else glob(f"{glob_escape(prefix)}/lib/python3*")
    return next((path for path in (*_ways(python), *_ways(*trees), *_inside(trees)) if not _is_roots(path)), "")


def _ways(*paths: str) -> Iterator[str]:
    """Each path, where it leads, and all folders above both."""
    for path in paths:
        for way in dict.fromkeys((path, os.path.realpath(path))):
            yield from (way, *map(str, Path(way).parents))


def _inside(trees: Sequence[str]) -> Iterator[str]:
    """All that is in folders, and in those that links there lead to."""
    waiting, seen = list(trees), {os.path.realpath(tree) for tree in trees}
    while waiting:
        for folder, folders, files in os.walk(waiting.pop()):
            for path in (f"{folder}/{each}" for each in (*folders, *files)):
                yield path
                if os.path.islink(path):
                    yield from _ways(path)
                    real = os.path.realpath(path)
                    if os.path.isdir(real) and not any(os.path.commonpath((real, each)) == each for each in seen):
                        waiting.append(real)
                        seen.add(real)


def _is_roots(path: str) -> bool:
    try:
        facts = os.lstat(path)
    except OSError:  # it does not start either
        return True
    is_sticky = stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX  # only root replaces what is root's there
    return facts.st_uid == 0 and (stat.S_ISLNK(facts.st_mode) or not facts.st_mode & 0o022 or bool(is_sticky))


def _lacking(name: str, words: str) -> ClusterError:
    return ClusterError(f"the nodes have no Python {name}: {' '.join(words.split())[:300]}", hint=_CURE)


def _unfit(name: str, words: str) -> ClusterError:
    return ClusterError(f"{name} is no Python of the nodes: {words[-300:]}", hint=_CURE)
