"""Folders and digest of installed packages."""

from __future__ import annotations

import asyncio
import hashlib
import os
import site
import sys
import sysconfig
from functools import cache
from pathlib import Path

#: a filesystem that takes longer has nothing new to say: the run goes on, and the next one waits for the same look
_LOOK_S = 0.5


@cache
def _possible_folders() -> list[str]:
    """Folders where packages may lie; they are asked for before each cell, and sysconfig takes a while."""
    paths = sysconfig.get_paths()
    folders = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return sorted(folders)


def package_folders() -> list[str]:
    """Folders of them that are there."""
    return [folder for folder in _possible_folders() if os.path.isdir(folder)]


def folders_stamp() -> tuple[tuple[str, int], ...]:
    """Cheap: modification times of the package folders; unchanged means nothing was installed or removed."""
    return tuple((folder, os.stat(folder).st_mtime_ns) for folder in package_folders())


def packages_digest() -> str:
    """Digest of interpreter and installed distributions (names, versions, times of their metadata folders)."""
    digest = hashlib.blake2b(sys.executable.encode(), digest_size=16)
    for folder in package_folders():
        for entry in sorted(Path(folder).iterdir()):
            if entry.suffix in (".dist-info", ".egg-info", ".pth"):
                digest.update(f"{entry.name}:{entry.stat().st_mtime_ns};".encode())
    return digest.hexdigest()


class PackageWatch:
    """Notices on an event loop that packages were installed or removed. It looks in a thread, once at a time."""

    def __init__(self) -> None:
        self._stamp: object = None
        self._digest = ""
        self._look: asyncio.Task[bool] | None = None

    async def has_changed(self) -> bool:
        """Tell if something was installed or removed since it was last asked; False while nobody can tell."""
        look = self._look = self._look or asyncio.create_task(asyncio.to_thread(self._is_new))
        try:
            return await asyncio.wait_for(asyncio.shield(look), _LOOK_S)
        except OSError:  # it takes too long, or something is removed as we look: the next look tells
            return False
        finally:
            if look.done() and self._look is look:
                self._look = None

    def _is_new(self) -> bool:
        stamp = folders_stamp()
        if stamp == self._stamp:
            return False
        before, self._stamp, self._digest = self._digest, stamp, packages_digest()
        return self._digest != before
