"""``jupyter gpu doctor``: every check, a finding each, and its mend."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from ...checks.cluster import dead_cluster, no_cluster
from ...checks.finding import Finding, broken, broken_by, note, ok, report_on
from ...checks.frameworks import Driver, compare_cuda, cuda_version, installed_frameworks
from ...checks.gateway import PATIENCE_S, STORE_S, check_cluster, check_used_store, check_within
from ...checks.home import check_home, check_to_come, check_token_file
from ...checks.jupyter_servers import check_jupyter_servers
from ...checks.package import check_package, compare_ray, installed_version
from ...checks.pod import check_pod, is_pod, without_gateway
from ...checks.slurm import check_slurm
from ...client.config import configured_target
from ...client.discovery import Target
from ...client.home import HomePaths
from ...client.rest import GatewayClient
from ...errors import GpuReleaseError, StoreError
from ...host.gpus import Nvml
from ...local_cluster.launch_spec import read_plans
from ...local_cluster.preflight import expect_last
from ...local_cluster.processes import daemon_alive, marked_clusters
from ...local_cluster.start import running_connection
from ..runs import print_json
from ..tables import output_console, print_findings


def check_versions() -> Iterator[Finding]:
    """Python, this package, Ray."""
    yield from check_package("call this command again")
    yield compare_ray(installed_version("ray"))


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
    with closing(Nvml()) as nvml:
        reading, version, cuda = nvml.read(), nvml.driver_version(), nvml.driver_cuda()
    count = len(reading.gpus)
    if not count:
        yield note(
            "nvml",
            f"no NVIDIA GPU on this machine ({reading.problem})",
            "a cluster that is started here has simulated ones",
        )
    else:
        names = ", ".join(gpu.name or gpu.problem for gpu in reading.gpus)
        yield ok("nvml", f"{count} GPUs: {names}; driver {version}, CUDA {cuda}")
    driver = Driver(bool(count), version, cuda_version(cuda) or (0, 0))
    for framework, built in installed_frameworks():
        yield compare_cuda(driver, framework, built)


def check_leftovers() -> Iterator[Finding]:
    """Folders and processes of clusters whose daemon is dead."""
    living = {plan.cluster for plan in read_plans() if daemon_alive(plan.daemon_pid, plan.cluster)}
    dead = [plan for plan in read_plans() if plan.cluster not in living]
    for plan in dead:
        stop = f"JUPYTER_GPU_HOME={plan.home} jupyter gpu stop"
        hint = f"`jupyter gpu start` goes on with its nodes; {stop}" if plan.outlives_head else stop
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


#: a server asks the Pythons of its kernels
_SERVER_S = 30.0
_ELSEWHERE = "nothing to do while that cluster lives; if it is no more, move its runs' folders off the store"


def run(arguments: argparse.Namespace) -> int:
    """Exit status 1 when something is broken."""
    report = report_on(_findings(HomePaths.from_environment()))
    if arguments.json:
        print_json(report)
    else:
        print_findings(output_console(), report.findings)
    return 0 if report.ok else 1


def _findings(home: HomePaths) -> Iterator[Finding]:
    yield from check_versions()
    yield from check_home(home)
    yield from check_gpus()
    with closing(Nvml()) as nvml:
        count = len(nvml.read().gpus)
    yield from check_pod(count)
    try:
        target = configured_target()
    except GpuReleaseError as error:
        yield broken_by("gateway", error)
        target = None
    if target is None or target.store:
        store = (target and target.store) or os.environ.get("JUPYTER_GPU_STORE") or home.store
        look = partial(check_store, home, is_used=target is not None)
        yield from check_within(STORE_S, look, Path(store).expanduser())
    if target is not None:
        yield from _check_target(home, target)
    else:
        yield without_gateway() if is_pod() else no_cluster()
    yield from check_jupyter_servers(Path(jupyter_runtime_dir()), _SERVER_S)
    yield from check_leftovers()


def _check_target(home: HomePaths, target: Target) -> Iterator[Finding]:
    connection = target.connection
    if connection is not None and connection.embedded:
        if running_connection(home) is None:
            yield dead_cluster(target)
            return
        yield ok("cluster", f"daemon {connection.daemon_pid}, Ray at {connection.ray_address}")
        yield from check_slurm(home)
    yield from check_token_file(target.token_file)
    told = list(check_cluster(target, partial(check_store, home, is_used=True)))
    yield from told
    if any(finding.check == "gateway" and finding.level == "ok" for finding in told):
        yield from _check_collecting(target)


def _check_collecting(target: Target) -> Iterator[Finding]:
    """Report what a collection would meet (a dry run): graphs that keep every blob, runs of others."""
    try:
        with GatewayClient.for_target(target, timeout_s=PATIENCE_S) as gateway:
            found = gateway.collect(dry_run=True)
    except GpuReleaseError as error:
        yield broken_by("gc", error)
        return
    for text in found.notes:
        problem, _, hint = text.partition("\n  → ")
        yield broken("gc", problem, hint) if hint else note("gc", problem, _ELSEWHERE)
    if not found.notes:
        yield ok("gc", "nothing keeps unused results from being freed")
