"""Checks of this machine alone, and of what others have told: they need no cluster and start nothing."""

from __future__ import annotations

import os
import platform
import re
import runpy
import socket
import stat
import sys
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from urllib.parse import urlsplit

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
from ..protocol.rest import NodeChecks
from ..store.run_folders import probe_store
from ..units import format_count, format_seconds

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
        elsewhere = "JUPYTER_GPU_STORE names where this machine sees it"
        return broken("store", error.message, f"{error.hint} {elsewhere}" if error.hint else elsewhere)
    return ok("store", f"{folder} can be written and read from here")


#: tokens expire and times are shown by these clocks; what is further apart confuses people, and then programs
_CLOCK_NOTED_S, _CLOCK_BROKEN_S = 2.0, 60.0
_CERTIFICATE_NOTED_DAYS = 14


def check_clocks(checks: NodeChecks, now_s: float) -> Iterator[Finding]:
    """The clocks of gateway and nodes against this one."""
    if not checks.now_s:
        return
    ahead_s = checks.now_s - now_s
    clocks = {"the gateway": ahead_s} | {
        node.host: ahead_s + node.clock_ahead_s for node in checks.nodes if not node.agent_problem
    }
    wrong = {where: by_s for where, by_s in clocks.items() if abs(by_s) > _CLOCK_NOTED_S}
    for where, by_s in wrong.items():
        told = broken if abs(by_s) > _CLOCK_BROKEN_S else note
        side = "ahead of" if by_s > 0 else "behind"
        yield told("clocks", f"the clock of {where} is {format_seconds(abs(by_s))} {side} this one", "NTP on all hosts")
    if not wrong:
        yield ok("clocks", "those of gateway and nodes are right by this one")


def check_drivers(checks: NodeChecks) -> Iterator[Finding]:
    """One driver on all nodes: a cell that ran on one shall run on the other."""
    drivers = {node.host: node.versions["driver"] for node in checks.nodes if node.versions.get("driver")}
    if len(set(drivers.values())) > 1:
        listed = ", ".join(f"{host} {version}" for host, version in sorted(drivers.items()))
        yield note("versions", f"the nodes' drivers differ: {listed}", "the same driver on all nodes")


def check_network(url: str, patience_s: float) -> Finding:
    """The way to a gateway that does not answer: its name, its host, its port."""
    at = urlsplit(url)
    host, port = at.hostname or "", at.port or (443 if at.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        mend = f"an entry in DNS or in /etc/hosts; `getent hosts {host}` shows what is known"
        return broken("network", f"no address is known for {host}: {error.strerror}", mend)
    addresses = sorted({str(address[0]) for *_kind, address in found})
    where = f"port {port} of {host}" + ("" if addresses == [host] else f" ({', '.join(addresses)})")
    try:
        socket.create_connection((host, port), timeout=patience_s).close()
    except ConnectionRefusedError:
        mend = "is the gateway up, and at this port? For other hosts: `start --host --port`. Some firewalls refuse, too"
        return broken("network", f"{where} is reached, and nothing listens there", mend)
    except OSError as error:
        is_silent = isinstance(error, TimeoutError)
        why = f"gives no answer within {patience_s:g} s" if is_silent else f"is not reached: {error.strerror}"
        mend = f"is a firewall or a VPN in between? Allow TCP port {port} from here to there"
        return broken("network", f"{where} {why}", mend)
    return ok("network", f"{where} is reached")


def check_certificate(days_left: float) -> Finding:
    """The time that the gateway's certificate has left; an expired one was refused before."""
    if days_left < _CERTIFICATE_NOTED_DAYS:
        mend = "renew it: put the new files in the place of the old ones"
        return note("tls", f"the gateway's certificate expires in {format_count(int(days_left), 'day')}", mend)
    return ok("tls", f"the gateway's certificate is good for {format_count(int(days_left), 'day')}")


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
            listed = " ".join(map(str, pids[:5])) + (f" … ({len(pids)} in all)" if len(pids) > 5 else "")
            what = f"processes of the cluster {cluster}, which has no folder here: {listed}"
            yield note("leftovers", what, "fine for another JUPYTER_GPU_RUNTIME, or a Ray node; else end them")
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
