"""Finds other Pythons on this node: by a version, by the path of an interpreter, or by the folder of an environment."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import packaging

from ...environments.installed import InstalledReader
from ...errors import ClusterError
from ...protocol.environments import OURS, Installed
from .installer import Installer, InstallerError

#: run in the other Python with the folder of our ``packaging``
_FACTS = """
import json, os, platform, sys, sysconfig
folders = [each for each in sys.path if os.path.basename(each.rstrip("/")) in ("site-packages", "dist-packages")]
sys.path.append(sys.argv[1])
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
    """Those of one node. ``folder``: to call the installer in."""

    def __init__(self, installer: Installer, folder: Path) -> None:
        self._installer = installer
        self._folder = folder
        self._known: dict[str, FoundPython] = {}

    async def find(self, name: str) -> FoundPython:
        """Return the Python of this name; of a version that is not here the installer's, where it may fetch it.

        Raises :class:`ClusterError`.
        """
        known = self._known.get(name)
        if known is None or not os.path.exists(known.python):
            known = self._known[name] = await _facts(name, await self._path(name))
        return known

    async def _path(self, name: str) -> str:
        if name.startswith("/"):
            return f"{name}/bin/python" if os.path.isdir(name) else name
        find = ["python", "find", "--no-project", name]
        try:
            return (await self._installer.call(find, self._folder)).strip()
        except InstallerError as error:
            if not self._installer.has_index:  # no network
                raise _lacking(name, error.words) from error
        try:
            await self._installer.call(["python", "install", name], self._folder)
            return (await self._installer.call(find, self._folder)).strip()
        except InstallerError as error:
            raise _lacking(name, error.words) from error


def _lacking(name: str, words: str) -> ClusterError:
    return ClusterError(f"the nodes have no Python {name}: {' '.join(words.split())[:300]}", hint=_CURE)


async def _facts(name: str, python: str) -> FoundPython:
    try:
        said = await asyncio.to_thread(_ask, python)
        version, platform, markers, folders = json.loads(said)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        words = getattr(error, "stderr", "") or str(error)
        raise ClusterError(f"{name} is no Python of the nodes: {str(words).strip()[-300:]}", hint=_CURE) from error
    return FoundPython(python, folders if os.path.isdir(name) else [], version, platform, markers)


def _ask(python: str) -> str:
    command: list[Any] = [python, "-I", "-c", _FACTS, Path(packaging.__file__).parents[1]]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_ANSWER_S,
        check=True,
        cwd="/",
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    return done.stdout
