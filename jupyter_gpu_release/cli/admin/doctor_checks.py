"""Checks of this machine alone: they need no cluster and start nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ...checks.finding import Finding, broken, broken_by, note, ok
from ...checks.frameworks import Driver, compare_cuda, dotted, installed_frameworks
from ...checks.gateway import check_used_store
from ...checks.home import check_to_come
from ...checks.package import DISTRIBUTION, check_package
from ...client.home import HomePaths
from ...errors import StoreError
from ...local_cluster.gpus import read_hardware
from ...local_cluster.launch_spec import read_plans
from ...local_cluster.preflight import expect_last
from ...local_cluster.processes import daemon_alive, marked_clusters


def check_versions() -> Iterator[Finding]:
    """Python, this package, Ray."""
    yield from check_package("call this command again")
    yield _check_ray()


def _check_ray() -> Finding:
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return broken("ray", "Ray is not installed here", f"pip install {DISTRIBUTION}")
    wanted = _wanted("ray")
    if not wanted.contains(version, prereleases=True):
        return broken("ray", f"Ray {version}, this package needs {wanted}", f"pip install 'ray{wanted}'")
    return ok("ray", f"Ray {version}")


def _wanted(name: str) -> SpecifierSet:
    """The range that this package asks for, such as ``<2.61,>=2.60``."""
    try:
        requirements = map(Requirement, metadata.requires(DISTRIBUTION) or [])
    except metadata.PackageNotFoundError:
        return SpecifierSet()
    return next((found.specifier for found in requirements if found.name == name), SpecifierSet())


def check_store(home: HomePaths, folder: Path, *, is_used: bool = False) -> Finding:
    """Write and read a small file in the store, from here; ``is_used``: by a gateway that is configured."""
    try:
        expect_last(home, folder)
    except StoreError as problem:
        return broken_by("store", problem)
    if not is_used and not os.path.exists(folder / "runs"):
        return check_to_come("store", folder / "runs", "JUPYTER_GPU_STORE")
    return check_used_store(folder)


def check_gpus() -> Iterator[Finding]:
    """NVML, and its driver against the CUDA that the installed frameworks were built for."""
    hardware = read_hardware()
    if not hardware.gpus:
        yield note(
            "nvml",
            f"no NVIDIA GPU on this machine ({hardware.problem})",
            "a cluster that is started here has simulated ones",
        )
    else:
        names = ", ".join(hardware.gpus)
        yield ok(
            "nvml", f"{len(hardware.gpus)} GPUs: {names}; driver {hardware.driver}, CUDA {dotted(hardware.driver_cuda)}"
        )
    driver = Driver(bool(hardware.gpus), hardware.driver, hardware.driver_cuda)
    for framework, cuda in installed_frameworks():
        yield compare_cuda(driver, framework, cuda)


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
            listed = " ".join(map(str, pids[:5])) + (f" … ({len(pids)} in all)" if len(pids) > 5 else "")
            what = f"processes of the cluster {cluster}, which has no folder here: {listed}"
            yield note("leftovers", what, "fine for another JUPYTER_GPU_RUNTIME, or a Ray node; else end them")
    if not dead:
        yield ok("leftovers", "no folder of a dead cluster")
