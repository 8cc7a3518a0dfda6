"""``python find_python.py 3.13``: prints the path of an interpreter of this version; installs it if there is none.

It asks the path, pyenv and uv. Needs nothing but the standard library: ``make test-python`` calls it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_WHICH = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
_LIMIT_S = 300


def find_python(version: str) -> str:
    """The path; empty: this machine has none."""
    for command in _commands(version):
        found, _, path = _said([*command, "-c", _WHICH]).partition(" ")
        if found == version:
            return path
    return ""


def _commands(version: str) -> Iterator[list[str]]:
    """What may start one, the cheapest to ask first. A shim of pyenv is there, and starts nothing."""
    yield [f"python{version}"]
    if prefix := _said(["pyenv", "prefix", version]):
        yield [f"{prefix}/bin/python{version}"]
    if path := _said(["uv", "python", "find", "--no-python-downloads", version]):
        yield [path]


def install_python(version: str) -> str:
    """Have uv install one, from PyPI where it is not there; empty: that is not possible."""
    with tempfile.TemporaryDirectory() as folder:
        uv = "uv"
        if not _said([uv, "--version"]):
            uv = str(Path(folder) / "bin" / "uv")
            _said([sys.executable, "-m", "venv", folder])
            _said([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "uv"])
        _said([uv, "python", "install", "--quiet", version])
        return _said([uv, "python", "find", "--no-python-downloads", version])


def _said(command: Sequence[str]) -> str:
    """What it prints; empty: it is not there, or failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


if __name__ == "__main__":
    wanted = sys.argv[1]
    if not (python := find_python(wanted) or install_python(wanted)):
        sys.exit(
            f"no Python {wanted} on the path, in pyenv or in uv, and uv could not install one: install python{wanted} "
            f"with its venv module (`pyenv install {wanted}`, `uv python install {wanted}`, or your system's package)"
        )
    print(python)
