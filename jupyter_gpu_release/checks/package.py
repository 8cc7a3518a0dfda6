"""This package in this process, and what is installed beside it for a cluster.

A long-lived process may have loaded an older version than is installed by now.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from .._version import __version__
from ..errors import ClusterError
from .finding import Finding, broken, note, ok

DISTRIBUTION = "jupyter-gpu-release"


def check_package(anew: str) -> Iterator[Finding]:
    """Python and this package. ``anew``: how this process is started again."""
    yield ok("python", f"Python {platform.python_version()}, {sys.executable}")
    # none: from a path, without an installation
    yield compare_installed(installed_version(DISTRIBUTION) or __version__, anew)


def compare_installed(installed: str, anew: str) -> Finding:
    """The version that this process has loaded against the ``installed`` one."""
    if installed == __version__:
        return ok("package", f"jupyter_gpu_release {__version__}")
    said = f"jupyter_gpu_release {__version__} is loaded, and {installed} is installed by now"
    return note("package", said, anew)


def compare_ray(version: str) -> Finding:
    """Ray, which a cluster needs and a notebook does not; an empty ``version``: it is not installed."""
    wanted = next((each.specifier for each in _needed_by("cluster") if each.name == "ray"), None)
    if not version:
        said = "Ray is not installed here: fine for notebooks of a cluster elsewhere"
        return note("ray", said, f"to start a cluster here: {_installing('cluster')}")
    if wanted is not None and not wanted.contains(version, prereleases=True):
        return broken("ray", f"Ray {version}, this package needs {wanted}", f"pip install 'ray{wanted}'")
    return ok("ray", f"Ray {version}")


def require_extra(extra: str, purpose: str) -> None:
    """Raise :class:`ClusterError` if something is not installed that ``jupyter-gpu-release[extra]`` asks for."""
    if missing := [each.name for each in _needed_by(extra) if not installed_version(each.name)]:
        raise ClusterError(
            f"{purpose} needs {', '.join(missing)}, not installed in {sys.prefix}", hint=_installing(extra)
        )


def _installing(extra: str) -> str:
    return f"{sys.executable} -m pip install '{DISTRIBUTION}[{extra}]'"


def _needed_by(extra: str) -> list[Requirement]:
    """The requirements of an extra; none where the package lies on a path without being installed."""
    try:
        found = map(Requirement, metadata.requires(DISTRIBUTION) or [])
    except metadata.PackageNotFoundError:
        return []
    return [each for each in found if each.marker is not None and each.marker.evaluate({"extra": extra})]


def installed_version(name: str) -> str:
    """The version of a distribution; empty: it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
