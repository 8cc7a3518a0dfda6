"""This package in this process: a long-lived one may have loaded an older version than is installed by now."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata

from .._version import __version__
from .finding import Finding, note, ok

DISTRIBUTION = "jupyter-gpu-release"


def check_package(anew: str) -> Iterator[Finding]:
    """Python and this package. ``anew``: how this process is started again."""
    yield ok("python", f"Python {platform.python_version()}, {sys.executable}")
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:  # from a path, without an installation
        installed = __version__
    yield compare_installed(installed, anew)


def compare_installed(installed: str, anew: str) -> Finding:
    """The version that this process has loaded against the ``installed`` one."""
    if installed == __version__:
        return ok("package", f"jupyter_gpu_release {__version__}")
    said = f"jupyter_gpu_release {__version__} is loaded, and {installed} is installed by now"
    return note("package", said, anew)
