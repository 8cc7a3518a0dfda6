"""The Slurm of Debian's next suite, unpacked, and laid over ``/usr`` for one command: ``unpack_slurm``, ``over_usr``.

A newer C library runs what was made for an older one, so that Python and its packages stay this machine's. Needs root.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SUITE = "trixie"
_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
_LIMIT_S = 600


def unpack_slurm(folder: Path) -> Path:
    """Fetch the packages, and all that they need, with apt's files in ``folder``; returns what they would install."""
    made = {name: folder / name for name in ("sources", "lists/partial", "cache/archives/partial", "root")}
    for each in made.values():
        each.mkdir(parents=True)
    here = f"Release: {platform.freedesktop_os_release()['VERSION_CODENAME']}"
    mirror = _said("apt-get", "indextargets", "--format", "$(REPO_URI)", here).split()[0]
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (made["sources"] / "next.sources").write_text(
        f"Types: deb\nURIs: {mirror}\nSuites: {_SUITE}\nComponents: main\nSigned-By: {keyring}\n"
    )
    where = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": made["sources"],
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": "/dev/null",  # nothing is installed: all that is needed comes along
        "Dir::Cache": folder / "cache",
    }
    options = [word for name, value in where.items() for word in ("-o", f"{name}={value}")]
    _said("apt-get", *options, "update")
    _said("apt-get", *options, "install", "--yes", "--download-only", "--no-install-recommends", *_PACKAGES)
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        _said("dpkg-deb", "-x", str(package), str(made["root"]))
    return made["root"]


def over_usr(root: Path, *command: str) -> Sequence[str]:
    """The command, in a mount namespace in which ``root`` lies over ``/usr``."""
    mount = f"mount -t overlay overlay -o lowerdir={shlex.quote(str(root / 'usr'))}:/usr /usr"
    return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]


def _said(*command: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout
