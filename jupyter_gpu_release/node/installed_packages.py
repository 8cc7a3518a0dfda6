"""Folders and digest of installed packages."""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from functools import cache
from pathlib import Path


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
