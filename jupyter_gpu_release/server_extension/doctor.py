"""``GET doctor``: this server, its sidebar, the packages of its kernels, then gateway and nodes as seen from here."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jupyter_core.paths import jupyter_path

from .._version import __version__
from ..checks.cluster import cluster_checks
from ..checks.finding import Finding, Report, at, broken, broken_by, note, ok, report_on
from ..checks.limits import Check, findings_within
from ..checks.package import DISTRIBUTION, check_package
from ..errors import GpuReleaseError
from .audit import SCHEMAS
from .gateway import GatewayConnection
from .models import Problem

_SERVER = "server"
_RESTART = "restart the Jupyter server"
#: the gateway gives each node 30 s; front ends wait a little longer
_LIMIT_S = 45.0
_KERNEL_S = 20.0
#: for the files that say where the gateway is
_FILES_S = 10.0
#: as which Jupyter starts the server's own Python
_OWN_PYTHONS = ("python", f"python{sys.version_info.major}", f"python{sys.version_info.major}.{sys.version_info.minor}")
_ASK_VERSION = f"from importlib import metadata; print(metadata.version({DISTRIBUTION!r}))"
#: the parts of `GET status` that are looked at here anew
_LOOKED_AT = frozenset({"gateway"})


@dataclass(frozen=True)
class ServerFacts:
    """This server as its extension knows it."""

    loops: int
    #: loops that have ended, and what else is missing
    dead: Collection[Problem]
    problems: Collection[Problem]
    #: ids of the schemas of events that can be sent
    schemas: Collection[str]
    #: kernelspec → the command that starts such a kernel
    kernels: Mapping[str, list[str]]


async def examine(facts: ServerFacts, find_line: Callable[[], GatewayConnection] | None) -> Report:
    """Check everything, in threads; takes 45 s at most.

    ``find_line``: gives the line to the gateway that speaks for who asks, or raises why there is none. None: the server
    alone is looked at.
    """
    checks: dict[str, Check] = {
        "extension": partial(check_extension, facts),
        "package": partial(check_package, _RESTART),
        "sidebar": partial(check_sidebar, jupyter_path("labextensions")),
        "events": partial(check_events, facts.schemas),
        "kernels": partial(check_kernels, facts.kernels),
    }
    try:
        if find_line is not None:
            line = find_line()
            checks |= cluster_checks(await asyncio.wait_for(line.find_target(), _FILES_S), line.token_file)
    except TimeoutError:
        mend = "does its filesystem answer? `ls` there would hang, too"
        hangs = broken("home", f"the cluster's files have not been read within {_FILES_S:g} s", mend, where=_SERVER)
        checks["home"] = lambda: [hangs]
    except GpuReleaseError as error:
        refused = broken_by("gateway", error, where=_SERVER)
        checks["gateway"] = lambda: [refused]
    return await asyncio.to_thread(_carry_out, checks)


def _carry_out(checks: Mapping[str, Check]) -> Report:
    return report_on(at(_SERVER, findings_within(_LIMIT_S, checks, where=_SERVER)))


def check_extension(facts: ServerFacts) -> Iterator[Finding]:
    """The extension is loaded, as it answers: its loops, and what it misses."""
    for loop in facts.dead:
        yield broken("extension", f"{loop.what}: {loop.message}", f"its log says why; {_RESTART}")
    if not facts.dead:
        yield ok("extension", f"it is enabled and loaded, and its {facts.loops} loops run")
    for problem in facts.problems:
        told = note if problem.what == "nvml" else broken
        if problem.what not in _LOOKED_AT:
            yield told("extension", problem.message, problem.hint or "the Jupyter server's log says more")


def check_sidebar(folders: Iterable[str]) -> Iterator[Finding]:
    """The version of the sidebar that JupyterLab finds in these folders."""
    for folder in folders:
        try:
            version = json.loads((Path(folder) / DISTRIBUTION / "package.json").read_text())["version"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if version == __version__:
            yield ok("sidebar", f"JupyterLab finds its version {version} in {folder}")
        else:
            said = f"JupyterLab finds the sidebar's version {version} in {folder}, this extension is {__version__}"
            yield note("sidebar", said, f"install {DISTRIBUTION} {__version__} there, and load the page again")
        return
    mend = f"install {DISTRIBUTION} where JupyterLab is installed; `jupyter labextension list` shows what it finds"
    yield note("sidebar", "JupyterLab finds no sidebar of this extension", mend)


def check_events(schemas: Collection[str]) -> Iterator[Finding]:
    """jupyter_events knows the events by which pages hear of changes."""
    missing = sorted(set(SCHEMAS) - set(schemas))
    if missing:
        yield broken("events", f"jupyter_events does not know {', '.join(missing)}: pages hear of no change", _RESTART)
    else:
        yield ok("events", f"jupyter_events knows this extension's {len(SCHEMAS)} schemas")


def check_kernels(kernels: Mapping[str, list[str]]) -> Iterator[Finding]:
    """This package in the Python of each kernelspec: an interpreter is asked once, whatever kernels it has."""
    versions: dict[str, str] = {}
    for name, command in sorted(kernels.items()):
        if not command or "python" not in Path(command[0]).name:
            continue
        python = sys.executable if command[0] in _OWN_PYTHONS else command[0]
        if python not in versions:
            versions[python] = _version_in(python)
        yield _compare_kernel(name, python, versions[python])


def _version_in(python: str) -> str:
    """Empty: it is not installed there, or cannot be asked."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK_VERSION], cwd="/", capture_output=True, text=True, timeout=_KERNEL_S
        )  # not in the notebooks' folder: a file of theirs would be imported
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _compare_kernel(name: str, python: str, version: str) -> Finding:
    if version == __version__:
        return ok("kernels", f"kernels of {name} have version {version}")
    mend = f"{python} -m pip install '{DISTRIBUTION}=={__version__}'"
    if not version:
        return note("kernels", f"kernels of {name} have no magics: {DISTRIBUTION} is not installed there", mend)
    return note("kernels", f"kernels of {name} have version {version}, this server {__version__}", mend)
