"""Packages that a cell installs itself (``%pip install``): in a virtual environment of its rank's own.

It lies in front of the packages that the rank has, which stay as they are, and is gone when the rank is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import sysconfig
from multiprocessing import spawn
from pathlib import Path

from ..errors import ClusterError

#: read once, before pairs are forked
_ROOT = os.environ.get("TMPDIR") or "/tmp"
_PREFIX = "jgr-packages-"
_SITE = frozenset({"site-packages", "dist-packages"})


def packages_folder(mark: str) -> str:
    """Return where the rank with this mark has them; it is there only if its cell may install some."""
    return os.path.join(_ROOT, _PREFIX + mark)


class RunPackages:
    """This process's own environment; the process and all that it starts from now on use it.

    Raises :class:`ClusterError` where it cannot be made.
    """

    def __init__(self, folder: str) -> None:
        try:
            self._site = _make(Path(folder))
            #: whoever finds it without a lock on it may remove it
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        except OSError as error:
            raise ClusterError(
                f"the cell has no place for packages of its own: {folder}: {error.strerror}",
                hint="make room in the node's folder for temporary files (`TMPDIR`)",
            ) from error
        _use(Path(folder), self._site)

    def installed(self) -> list[str]:
        """List what was installed: ``einops-0.8.1``."""
        return sorted(path.name.removesuffix(".dist-info") for path in self._site.glob("*.dist-info"))

    def notes(self) -> list[str]:
        """Say for the receipt what was installed, and how it is kept."""
        pairs = [name.rpartition("-")[::2] for name in self.installed()]
        if not pairs:
            return []
        named = ", ".join(f"{name} {version}" for name, version in pairs)
        names = " ".join(f"{name}=={version}" for name, version in pairs)
        return [
            f"installed for this run, and gone with it: {named}. "
            f"`%pip install` in a plain cell keeps it, `--pip '{names}'` adds it to a cell"
        ]


def _make(folder: Path) -> Path:
    """Write what makes a folder a virtual environment; returns where its packages go."""
    base = str(vars(sys).get("_base_executable") or sys.executable)
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)}))
    folder.mkdir(mode=0o700)  # whatever is there by this name is not ours
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(base)
    (folder / "bin" / "python3").symlink_to("python")
    for name in ("pip", "pip3"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m pip "$@"\n')
        script.chmod(0o700)
    (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(base)}\ninclude-system-site-packages = false\n")
    behind = [entry for entry in sys.path if os.path.basename(entry.rstrip("/")) in _SITE]
    lines = "".join(f"import site; site.addsitedir({entry!r})\n" for entry in dict.fromkeys(behind))
    (packages / "jupyter_gpu_behind.pth").write_text(lines)
    return packages


def _use(folder: Path, packages: Path) -> None:
    sites = [place for place, entry in enumerate(sys.path) if os.path.basename(entry.rstrip("/")) in _SITE]
    sys.path.insert(sites[0] if sites else len(sys.path), str(packages))
    sys.executable = str(folder / "bin" / "python")
    spawn.set_executable(sys.executable)
    path = os.environ.get("PATH", os.defpath)
    os.environ.update(VIRTUAL_ENV=str(folder), PATH=f"{folder / 'bin'}{os.pathsep}{path}")


def remove_packages(folder: str) -> None:
    """Remove the environment of a rank that has ended, if it had one."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_left_packages(before_s: float) -> None:
    """Remove those that nobody has touched since then and whose ranks have ended: their supervisors were killed."""
    for path in Path(_ROOT).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else removes it
            facts = path.lstat()
            is_ours = stat.S_ISDIR(facts.st_mode) and os.geteuid() in (0, facts.st_uid)
            if is_ours and facts.st_mtime < before_s and not _is_locked(path):
                remove_packages(str(path))


def _is_locked(folder: Path) -> bool:
    looked_at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(looked_at, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(looked_at)
    return False
