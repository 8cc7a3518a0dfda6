"""The package of an earlier version, installed from a wheel that is built from its commit, with a lower number.

Where the clone does not have the commit (a shallow one) it is built from this tree, with a lower protocol, too.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from jupyter_gpu_release.protocol.session import PROTOCOL

REPOSITORY = Path(__file__).parents[2]
PACKAGE = "jupyter_gpu_release"
OLD_VERSION = "0.0.9"
#: what stands for the version before: the next release puts its own there
EARLIER = "89e3d041"
#: the first in which versions may be one protocol apart. None had another number since, so it gets one
ONE_APART = "d7c91afa"
#: the last whose agents know runs without their attempts (restartable ones, too)
BEFORE_ATTEMPTS = "32893eb9"
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def install_earlier(folder: Path, commit: str = EARLIER) -> Path:
    """A folder below ``folder`` with nothing but the package of the version before."""
    sources, libraries = folder / "sources", folder / "libraries"
    archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, capture_output=True, timeout=60)
    if archive.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(sources, filter="data")
    else:
        _copy_of_this_tree(sources)
    (sources / PACKAGE / "_version.py").write_text(f'"""Of the version before."""\n\n__version__ = "{OLD_VERSION}"\n')
    if archive.returncode or commit == ONE_APART:
        _lower_protocol(sources)
    build = [*_PIP, "wheel", "--quiet", "--no-deps", "-w", folder, sources]
    subprocess.run(build, env=os.environ | {"SKIP_JUPYTER_BUILDER": "1"}, check=True, timeout=240)
    (wheel,) = folder.glob("*.whl")
    install = [*_PIP, "install", "--quiet", "--no-deps", "--no-index", "--target", libraries, wheel]
    subprocess.run(install, check=True, timeout=120)
    return libraries


def replace_with_ours(libraries: Path) -> None:
    """The upgrade: this tree's package instead of the one that is installed there."""
    shutil.rmtree(libraries / PACKAGE)
    shutil.copytree(REPOSITORY / PACKAGE, libraries / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))


def _copy_of_this_tree(sources: Path) -> None:
    shutil.copytree(REPOSITORY / PACKAGE, sources / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("install.json", "jupyter-config", "docs"):
        whole = REPOSITORY / name
        shutil.copytree(whole, sources / name) if whole.is_dir() else shutil.copy(whole, sources / name)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(REPOSITORY / name, sources / name)


def _lower_protocol(sources: Path) -> None:
    file = sources / PACKAGE / "protocol" / "session.py"
    lowered, count = re.subn(r"^PROTOCOL = \d+$", f"PROTOCOL = {PROTOCOL - 1}", file.read_text(), flags=re.MULTILINE)
    assert count == 1
    file.write_text(lowered)
