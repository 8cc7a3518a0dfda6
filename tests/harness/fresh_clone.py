"""The repository as a clone has it, and an environment that is new but for the libraries.

What the package needs is read from the environment of the tests, where it takes minutes and gigabytes to install. The
sidebar is built already, too. The package itself is not there.
"""

from __future__ import annotations

import shutil
import sysconfig
import venv
from importlib.metadata import distribution
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BUNDLE = REPOSITORY / "jupyter_gpu_release" / "labextension" / "package.json"
#: paths that a clone does not have; nor environments (``.venv``, ``.venv-3.13``), of some GB each
_NOT_COPIED = {
    ".git",
    "labextension/node_modules",
    "labextension/lib",
    "examples/out",
    "docs/_build",
    "docs/_made",
    "benchmarks/results",
    "dist",
    "build",
}
#: what the installation of Jupyter puts into an environment's ``bin``
_COMMANDS = (("jupyter-core", "jupyter"), ("jupyterlab", "jupyter-lab"))


def copy_repository(target: Path) -> None:
    """As `git clone` does it, with the built sidebar."""
    shutil.copytree(REPOSITORY, target, ignore=_not_of_a_clone)


def _not_of_a_clone(folder: str, names: list[str]) -> set[str]:
    paths = {name: str((Path(folder) / name).relative_to(REPOSITORY)) for name in names}
    left = ("_cache", "__pycache__")
    return {
        name for name, path in paths.items() if path in _NOT_COPIED or name.startswith(".venv") or name.endswith(left)
    }


def make_environment(folder: Path) -> None:
    """A virtual environment with all libraries and JupyterLab, and without the package."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # a path alone: the .pth files there, one of which is the editable installation's, are not read
    (packages / "libraries.pth").write_text("\n".join(libraries))
    for package, command in _COMMANDS:
        (entry,) = distribution(package).entry_points.select(group="console_scripts", name=command)
        script = f"#!{folder / 'bin' / 'python'}\nfrom {entry.module} import {entry.attr}\n{entry.attr}()\n"
        (folder / "bin" / command).write_text(script)
        (folder / "bin" / command).chmod(0o755)
    for data in (Path("share", "jupyter", name) for name in ("lab", "nbconvert")):
        (folder / data).parent.mkdir(parents=True, exist_ok=True)
        (folder / data).symlink_to(Path(sysconfig.get_path("data")) / data)
