"""The nodes of a cluster, as they and the gateway tell: agents, store, clocks, drivers, frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .._version import __version__
from ..protocol.rest import NodeCheck, NodeChecks, StatusDocument
from ..units import format_bytes, format_seconds
from .finding import Finding, broken, note, ok
from .frameworks import Driver, compare_cuda, cuda_version

#: tokens expire and times are shown by these clocks; what is further apart confuses people, and then programs
_CLOCK_NOTED_S, _CLOCK_BROKEN_S = 2.0, 60.0
_UPGRADE = "its agent is made anew as soon as nothing runs there; else install the same version on both sides"
_COMES_BACK = "once it is well it comes back by itself"
_SHARED_BYTES = 1 << 28
_MORE_SHARED = "a pod: an emptyDir with `medium: Memory` at /dev/shm (our chart: sharedMemory); Docker: --shm-size"
_LEAST_FILES, _LEAST_PROCESSES = 4096, 2048
_MORE_FILES = "`ulimit -n 65536` for what starts Ray there (systemd: LimitNOFILE=65536; jobs of Slurm have slurmd's)"
_MORE_PROCESSES = (
    "a higher `ulimit -u` for what starts Ray there (systemd: LimitNPROC=, TasksMax=); "
    "a pod: podPidsLimit of the kubelet; Docker: --pids-limit"
)
_REMARK = "the log of the node's agent says more; a library may leave the preload list (JUPYTER_GPU_PRELOAD)"


def check_nodes(status: StatusDocument, checks: NodeChecks) -> Iterator[Finding]:
    """Each node: its agent, its version, the store as it sees it; nodes and GPUs that get no runs."""
    for row in status.nodes:
        if row.drained:
            yield note("nodes", row.drained, f"jupyter gpu nodes resume {row.host}", where=row.host)
        for gpu in (gpu for gpu in row.gpus if gpu.drained):
            mend = _COMES_BACK if gpu.unwell else f"jupyter gpu nodes resume {row.host}:{gpu.index}"
            yield note("gpus", gpu.drained, mend, where=row.host)
    remarks = {node.host: (len(node.gpus), node.notes) for node in status.nodes}
    for node in checks.nodes:
        if node.agent_problem:
            mend = "Ray restarts the agent; see Ray's logs there"
            yield broken("nodes", f"{node.host}: {node.agent_problem}", mend, where=node.host)
            continue
        gpus, notes = remarks.get(node.host, (0, []))
        yield from _check_agent(node, gpus)
        yield _check_store(node, checks.store)
        for remark in notes:
            yield note("nodes", f"{node.host}: {remark}", _REMARK, where=node.host)


def _check_agent(node: NodeCheck, gpus: int) -> Iterator[Finding]:
    if not node.version:
        mend = "it takes runs as soon as it has; still so in a minute? See Ray's logs there"
        yield note("nodes", f"{node.host}: its agent has not introduced itself yet", mend, where=node.host)
        return
    yield ok("nodes", f"{node.host}: {gpus} GPUs, Python {node.python}, package {node.version}", where=node.host)
    if node.version != __version__:
        found = f"{node.host} has version {node.version}, this is {__version__}"
        yield note("versions", found, _UPGRADE, where=node.host)


def _check_store(node: NodeCheck, store: str) -> Finding:
    if not node.store_problem:
        return ok("store", f"{store} can be written and read from {node.host}", where=node.host)
    problem, _, hint = node.store_problem.partition("\n  → ")
    mend = hint or "make the store writable there, under the same path"
    return broken("store", f"{node.host}: {problem}", mend, where=node.host)


def check_stores(checks: NodeChecks, store_id: str) -> Iterator[Finding]:
    """One store at the store's path, on all nodes: the gateway's (``store_id``; empty: it does not tell)."""
    for node in checks.nodes:
        found = node.probe.store_id if node.probe is not None and not node.store_problem else None
        if store_id and found is not None and found != store_id:
            what = f"another store (store.json says {found})" if found else "a folder without store.json"
            mend = "mount the shared filesystem there, under this path"
            said = f"{node.host} sees {what} at {checks.store}, the gateway's store is {store_id}"
            yield broken("store", said, mend, where=node.host)


def check_environments(checks: NodeChecks) -> Iterator[Finding]:
    """Each node that is to build environments can: installer, folder, disk and index. Other cells need none."""
    for node in checks.nodes:
        found = node.probe.environments_problem if node.probe is not None else None
        if found:
            problem, _, hint = found.partition("\n  → ")
            yield note("environments", f"{node.host}: {problem}", hint, where=node.host)
        elif found is not None:
            yield ok("environments", f"{node.host} can build environments", where=node.host)
    yield from _check_offered(checks)
    yield from _check_owned(checks)


def _check_offered(checks: NodeChecks) -> Iterator[Finding]:
    """Each Python that the operator offers is on each node, and of one minor version."""
    minors: dict[str, dict[str, str]] = {}
    for node in checks.nodes:
        for each in node.probe.pythons if node.probe is not None else ():
            if each.problem:
                yield note("environments", f"{node.host}: {each.problem}", each.mend, where=node.host)
            else:
                yield ok("environments", f"{node.host} has Python {each.version} ({each.interpreter})", where=node.host)
                minors.setdefault(each.interpreter, {})[node.host] = _minor(each.version)
    for interpreter, found in minors.items():
        if len(set(found.values())) > 1:
            said = f"{interpreter} is Python {_listed(found)}: an environment for one does not fit the other"
            yield note("environments", said, "the same minor version under this path on all nodes")


def _check_owned(checks: NodeChecks) -> Iterator[Finding]:
    """The cluster's own packages are the same on all nodes: environments are planned in front of one set of them."""
    found: dict[str, dict[str, str]] = {}
    hosts = {node.host: node.probe.owned for node in checks.nodes if node.probe is not None and node.probe.owned}
    for host, versions in hosts.items():
        for name, version in versions.items():
            found.setdefault(name, dict.fromkeys(hosts, "missing"))[host] = version
    for name, versions in sorted(found.items()):
        if len(set(versions.values())) > 1:
            yield note("versions", f"{name}: {_listed(versions)}", "the same version on all nodes")


def _listed(values: Mapping[str, str]) -> str:
    """``2.4 on gpu-01, 2.5 on gpu-02 and gpu-03``."""
    hosts: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts.setdefault(value, []).append(host)
    return ", ".join(f"{value} on {' and '.join(found)}" for value, found in hosts.items())


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
        said = f"the clock of {where} is {format_seconds(abs(by_s))} {side} this one"
        yield told("clocks", said, "NTP on all hosts", where=where.removeprefix("the "))
    if not wrong:
        yield ok("clocks", "those of gateway and nodes are right by this one")


def check_drivers(checks: NodeChecks) -> Iterator[Finding]:
    """One driver on all nodes: a cell that ran on one shall run on the other."""
    drivers = {node.host: node.versions["driver"] for node in checks.nodes if node.versions.get("driver")}
    if len(set(drivers.values())) > 1:
        listed = ", ".join(f"{host} {version}" for host, version in sorted(drivers.items()))
        yield note("versions", f"the nodes' drivers differ: {listed}", "the same driver on all nodes")


def check_pythons(checks: NodeChecks, python: str) -> Iterator[Finding]:
    """The minor version of Python on each node against a kernel's (empty: there is none)."""
    ours = _minor(python)
    for node in checks.nodes:
        if python and node.python and _minor(node.python) != ours:
            said = (
                f"{node.host} has Python {node.python}, this kernel {python}: the notebook's functions do not run there"
            )
            mend = f"a kernel with Python {_minor(node.python)}, or {ours} on the cluster"
            yield note("python", said, mend, where=node.host)


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def check_frameworks(checks: NodeChecks) -> Iterator[Finding]:
    """The CUDA that each node's frameworks were built for against its driver, on nodes that have GPUs."""
    for node in checks.nodes:
        probe = node.probe
        if probe is None or not probe.driver_cuda:
            continue
        driver = Driver(True, node.versions.get("driver", ""), cuda_version(probe.driver_cuda) or (0, 0))
        for framework, cuda in sorted(probe.frameworks.items()):
            yield compare_cuda(driver, framework, cuda_version(cuda), where=node.host)


def check_shared_memory(checks: NodeChecks) -> Iterator[Finding]:
    """Room in ``/dev/shm`` on each node: a container has 64 MiB of it unless somebody gives it more."""
    for node in checks.nodes:
        shared_bytes = node.probe.shared_bytes if node.probe is not None else None
        if shared_bytes is not None and shared_bytes < _SHARED_BYTES:
            said = f"{node.host}: /dev/shm holds {format_bytes(shared_bytes)}: data loaders with workers fail there"
            yield note("memory", said, _MORE_SHARED, where=node.host)


def check_process_limits(checks: NodeChecks) -> Iterator[Finding]:
    """Limits on open files, and on processes, that cells meet sooner than their users expect."""
    for node in checks.nodes:
        probe = node.probe
        if probe is None:
            continue
        if probe.open_files is not None and 0 <= probe.open_files < _LEAST_FILES:
            said = f"a process may have {probe.open_files} files open: data loaders with workers may meet that"
            yield note("limits", f"{node.host}: {said}", _MORE_FILES, where=node.host)
        if probe.processes is not None and probe.processes < _LEAST_PROCESSES:
            said = f"{probe.processes} processes and threads at most: loaders and thread pools may fail to start there"
            yield note("limits", f"{node.host}: {said}", _MORE_PROCESSES, where=node.host)
