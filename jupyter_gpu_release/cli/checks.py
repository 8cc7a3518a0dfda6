"""Checks of this machine alone: they need no cluster and start nothing."""

from __future__ import annotations

import os
import platform
import re
import runpy
import stat
import sys
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from .._version import __version__
from ..client.home import HomePaths
from ..errors import StoreError
from ..local_cluster.gpus import Hardware, read_hardware
from ..local_cluster.launch_spec import read_plans
from ..local_cluster.preflight import expect_last
from ..local_cluster.processes import daemon_alive, marked_clusters
from ..store.run_folders import probe_store

_DISTRIBUTION = "jupyter-gpu-release"
OK, NOTE, BROKEN = "ok", "note", "broken"


def check_versions() -> Iterator[Finding]:
    """Python, this package, Ray."""
    yield ok("python", f"Python {platform.python_version()}, {sys.executable}")
    yield ok("package", f"jupyter_gpu_release {__version__}")
    yield _check_ray()


def _check_ray() -> Finding:
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return broken("ray", "Ray is not installed here", f"pip install {_DISTRIBUTION}")
    wanted = _wanted("ray")
    if not wanted.contains(version, prereleases=True):
        return broken("ray", f"Ray {version}, this package needs {wanted}", f"pip install 'ray{wanted}'")
    return ok("ray", f"Ray {version}")


def _wanted(name: str) -> SpecifierSet:
    """The range that this package asks for, such as ``<2.61,>=2.60``."""
    try:
        requirements = map(Requirement, metadata.requires(_DISTRIBUTION) or [])
    except metadata.PackageNotFoundError:
        return SpecifierSet()
    return next((found.specifier for found in requirements if found.name == name), SpecifierSet())


def check_home(home: HomePaths) -> Iterator[Finding]:
    """Folder and token files: nobody else may read them."""
    if not os.path.exists(home.root):  # False too where it may not be looked for
        yield _check_to_come("home", home.root, "JUPYTER_GPU_HOME")
        return
    yield _check_mode("home", home.root, 0o700)
    for path in (home.token, home.ray_token, home.connection, home.gateway_config):
        if path.exists():
            yield _check_mode("token" if "token" in path.name else "home", path, 0o600)


def _check_mode(check: str, path: Path, wanted: int) -> Finding:
    facts = path.stat()
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != os.getuid():
        return broken(check, f"{path} belongs to another user (uid {facts.st_uid})", f"chown it, or remove {path}")
    if mode & 0o077:
        return broken(check, f"{path} may be read by others (mode {mode:04o})", f"chmod {wanted:o} {path}")
    return ok(check, f"{path} is private (mode {mode:04o})")


def _check_to_come(check: str, folder: Path, variable: str) -> Finding:
    """A folder that is not there yet: doctor makes none, it says whether `start` could."""
    above = next(parent for parent in folder.parents if os.path.exists(parent))
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return ok(check, f"{folder} does not exist yet (`jupyter gpu start` makes it)")
    why = "may not be written" if above.is_dir() else "is no folder"
    return broken(check, f"{folder} does not exist, and cannot be made: {above} {why}", f"name another: {variable}")


def check_store(home: HomePaths, folder: Path, *, is_used: bool = False) -> Finding:
    """Write and read a small file in the store, from here; ``is_used``: by a gateway that is configured."""
    try:
        expect_last(home, folder)
    except StoreError as problem:
        return broken("store", problem.message, problem.hint)
    if not is_used and not os.path.exists(folder / "runs"):
        return _check_to_come("store", folder / "runs", "JUPYTER_GPU_STORE")
    try:
        probe_store(folder)
    except StoreError as error:
        return broken("store", error.message, error.hint or "check the path, or set JUPYTER_GPU_STORE")
    return ok("store", f"{folder} can be written and read from here")


def check_gpus() -> Iterator[Finding]:
    """NVML, and its driver against the CUDA that the installed frameworks were built for."""
    hardware = read_hardware()
    if not hardware.gpus:
        yield note("nvml", f"no NVIDIA GPU on this machine ({hardware.problem})", "GPUs will be simulated here")
    else:
        names = ", ".join(hardware.gpus)
        yield ok("nvml", f"{len(hardware.gpus)} GPUs: {names}; driver {hardware.driver}, CUDA {_dotted(hardware)}")
    for framework, cuda in _framework_cuda():
        yield compare_cuda(hardware, framework, cuda)


def compare_cuda(hardware: Hardware, framework: str, cuda: tuple[int, int] | None) -> Finding:
    """Tell if a framework built for ``cuda`` (None: a CPU build) can work with this machine's driver."""
    if cuda is None:
        if not hardware.gpus:
            return ok("cuda", f"{framework} is a CPU build, and there is no GPU here")
        return broken("cuda", f"{framework} is a CPU build: its cells cannot use the GPUs", "install its CUDA build")
    built = f"{framework} is built for CUDA {cuda[0]}" + (f".{cuda[1]}" if cuda[1] else "")
    if not hardware.gpus:
        return ok("cuda", f"{built}; there is no GPU here")
    # since CUDA 11 a driver runs every minor version of its own major version
    if hardware.driver_cuda[0] < cuda[0]:
        return broken(
            "cuda",
            f"{built}, the driver {hardware.driver} supports up to {_dotted(hardware)}",
            f"upgrade the NVIDIA driver, or install {framework.split()[0]} for CUDA {hardware.driver_cuda[0]}",
        )
    return ok("cuda", f"{built}, the driver supports {_dotted(hardware)}")


def _dotted(hardware: Hardware) -> str:
    return ".".join(map(str, hardware.driver_cuda))


def _framework_cuda() -> Iterator[tuple[str, tuple[int, int] | None]]:
    """Installed frameworks and the CUDA version of their build (None: a CPU build); none of them is imported."""
    spec = util.find_spec("torch")
    if spec is not None and spec.origin:
        facts = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
        match = re.match(r"(\d+)\.(\d+)", facts.get("cuda") or "")
        yield f"torch {facts.get('__version__')}", (int(match[1]), int(match[2])) if match else None
    for distribution in metadata.distributions():
        match = re.fullmatch(r"(jax-cuda|cupy-cuda)(\d+)x?(?:-plugin)?", (distribution.metadata["Name"] or "").lower())
        if match:
            yield f"{match[1].split('-')[0]} {distribution.version}", (int(match[2]), 0)


def check_leftovers() -> Iterator[Finding]:
    """Folders and processes of clusters whose daemon is dead."""
    living = {plan.cluster for plan in read_plans() if daemon_alive(plan.daemon_pid, plan.cluster)}
    dead = [plan for plan in read_plans() if plan.cluster not in living]
    for plan in dead:
        hint = f"JUPYTER_GPU_HOME={plan.home} jupyter gpu stop"
        yield broken("leftovers", f"{plan.runtime} belongs to a cluster whose cluster daemon is gone", hint)
    known = living | {plan.cluster for plan in dead}
    for cluster, pids in marked_clusters().items():
        if cluster not in known:
            # a node of an attached cluster has such processes rightly, so this is no more than a note
            listed = " ".join(map(str, pids))
            yield note("leftovers", f"processes of the cluster {cluster}, which has no folder here: {listed}")
    if not dead:
        yield ok("leftovers", "no folder of a dead cluster")


class Finding(msgspec.Struct, frozen=True):
    """The result of one check. ``level``: ``ok``, ``note`` (worth knowing) or ``broken`` (exit status 1)."""

    check: str
    level: str
    finding: str
    hint: str = msgspec.field(default="", name="mend")


def ok(check: str, finding: str) -> Finding:
    """Nothing to do."""
    return Finding(check, OK, finding)


def note(check: str, finding: str, hint: str = "") -> Finding:
    """Worth knowing, not an error."""
    return Finding(check, NOTE, finding, hint)


def broken(check: str, finding: str, hint: str) -> Finding:
    """Must be mended; ``hint`` says how."""
    return Finding(check, BROKEN, finding, hint)


class Report(msgspec.Struct, frozen=True):
    """``jupyter gpu doctor --json``."""

    ok: bool
    findings: list[Finding]
    schema_version: int = 1
